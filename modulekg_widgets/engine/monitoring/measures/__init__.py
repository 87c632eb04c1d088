"""What metrics share of one call, each made once however many ask.

To read: `moments` (norm, mean, deviation, extremes, by channel and of all), `channels` (which dimension the channels
are), `spectra` (eigenvalues of covariances), `attention_logits` (queries, keys and masks of attentions).
"""
