"""Model files, read without running them: safetensors, ONNX, torch.export, TorchScript, checkpoints, GGUF.

Read records.py first (what every reader gives), then source.py and zip_archive.py (bytes within bounds), readers.py
(which reader gets a file) and the readers in formats/. config_json.py adds the configuration beside a file.
tensor_owners.py and skeleton.py make modules of the records, tensor_reading.py tensors;
model_file.py is what users hold, and compare/ tells two of them apart.
"""
