from .export import save_exported as save_exported
from .export import save_onnx as save_onnx
from .model import FittedModel as FittedModel
from .model_file import load_safetensors as load_safetensors
from .model_file import save_safetensors as save_safetensors
