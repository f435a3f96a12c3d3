"""Parameters on disk: one safetensors file, float32, tensors named by their path in the model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from reproduction.olmo3.model import Config, Decoder, Params


def save(path: Path, params: Params, config: Config) -> None:
    """Write the parameters and, as metadata, the configuration they belong to."""
    tensors = {_name(key): np.asarray(param.get_value()) for key, param in nnx.to_flat_state(params)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_bytes(tensors, metadata={"config": json.dumps(asdict(config))}))


def load(path: Path) -> tuple[nnx.GraphDef[Decoder], Params, Config]:
    """The model's graph, its parameters and its configuration, as `save` wrote them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no safetensors file, or its tensors are not those its configuration describes.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            config = Config(**json.loads((file.metadata() or {})["config"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a checkpoint of this model ({error}); record the lab again") from error
    graph, template = nnx.split(Decoder(config, nnx.Rngs(0)), nnx.Param)
    flat = dict(nnx.to_flat_state(template))
    if {_name(key): param.shape for key, param in flat.items()} != {name: t.shape for name, t in tensors.items()}:
        raise ValueError(f"{path}: its tensors are not those of its own configuration; record the lab again")
    params = {key: param.replace(jnp.asarray(tensors[_name(key)])) for key, param in flat.items()}
    return graph, nnx.from_flat_state(params), config


def _name(key: tuple[Any, ...]) -> str:
    return ".".join(map(str, key))
