"""Model files, read without running them: safetensors, ONNX, torch.export, TorchScript, checkpoints of torch, GGUF.

Read records.py first (what every reader gives), then source.py and archive.py (bytes within bounds) and readers.py
(which reader gets a file). Then the readers: safetensors.py, gguf.py, onnx_wire.py and onnx_file.py, pt2.py,
pickle_opcodes.py, pickled.py, torch_zip.py and distributed.py; config.py adds what stands beside a file. kinds.py and
skeleton.py make modules of the records, graph.py a graph, mapping.py and decoding.py tensors; model_file.py is what
users hold, and comparison.py tells two of them apart.
"""
