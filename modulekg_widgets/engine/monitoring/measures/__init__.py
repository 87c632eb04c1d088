"""Measures of one call that several metrics share, each made once.

moments.py has norm, mean, deviation and extremes, of all and by channel; spectra.py eigenvalues of covariances;
attention_logits.py queries, keys and masks of attentions.
"""
