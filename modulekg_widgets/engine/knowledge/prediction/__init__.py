"""Predictions of accuracy, latency or any other target from structure, with an interval or a refusal.

Read data/ first (what is known of models and data sets), then predictors/ (how it is learnt) and predictor.py (the
answer). applicability_domain.py says where nothing is known, evaluation.py compares all predictors on families not
seen.
"""
