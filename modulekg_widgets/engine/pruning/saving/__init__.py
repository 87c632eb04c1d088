"""Cut models as folders of JSON and safetensors, which another process loads.

Reading order: tensor_file.py (tensors on disk), empty_weights.py (models without weights), model_signature.py (two
models compared), origin.py, class_origin.py and library_origins.py (how a model is built anew), config_numbers.py
(what a configuration can say), model_folder.py (what is written, whole or not at all), save.py and load.py.
"""
