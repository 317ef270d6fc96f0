from .export import save_exported as save_exported
from .export import save_onnx as save_onnx
from .model import FittedModel as FittedModel
from .safetensors import load_safetensors as load_safetensors
from .safetensors import read_safetensors as read_safetensors
from .safetensors import save_safetensors as save_safetensors
