"""ONNX files: wire format, tensors, operators and modules.

Read onnx_wire.py first (messages in the bytes of the file), then onnx_tensors.py, onnx_modules.py
(modules that the exporter has named) and onnx_file.py (operators in order, and the reader).
"""
