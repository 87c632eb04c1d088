"""Cut models as folders of JSON and safetensors, which another process loads.

Reading order: tensor_file.py (tensors on disk), empty.py (models without weights), twins.py (two models compared),
origin.py and the file of each library (how a model is built anew), config_search.py (what a configuration can say),
manifest.py and folder.py (what is written, whole or not at all), save.py and load.py.
"""
