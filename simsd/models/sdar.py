"""The family of dense SDAR checkpoints, which have Qwen3's settings and tensors and are used for block diffusion.

A row predicts the token at its own position, not the next one. The network is in simsd/models/sdar_network.py.
"""

import re
from typing import TYPE_CHECKING, Any

from simsd.models.config import ModelConfig, standard_fields
from simsd.models.config_file import ConfigFile
from simsd.models.family import Family, Layout, Piece

if TYPE_CHECKING:
    from simsd.models.sdar_network import SDARForCausalLM

ARCHITECTURE = "SDARForCausalLM"
PUBLIC_NAME = re.compile(r"SDAR-[\d.]+B(-A\d+B)?(-[A-Za-z]+)?(-b(?P<block_size>\d+))?")
"""The last part of a public checkpoint's name, such as SDAR-1.7B-Chat or SDAR-8B-Chat-b16."""
PUBLIC_BLOCK_SIZE = 4
"""The block size of public checkpoints whose name has no suffix."""
PUBLIC_MASK_TOKEN_ID = 151669
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "hidden_activation": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "qkv_bias": (False,),
    "use_bias": (False,),
    "use_qkv_bias": (False,),
    "lm_head_bias": (False,),
    "use_qk_norm": (True,),
    "qk_norm": (True,),
    "partial_rotary_factor": (1,),
    "rotary_pct": (1,),
    "rope_type": ("default",),
    "rope_base": (),
    "rotary_base": (),
    "rotary_emb_base": (),
    "rope_local_base_freq": (),
    "rope_factor": (1,),
    "original_max_position_embeddings": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "logit_scale": (1,),
    "quantization_config": (),
}
"""Settings that would change the result, each with the values that agree with what this family computes."""


def block_size_from_name(name: str) -> int | None:
    """Return the block size by the last part of a public checkpoint's name, or None for any other name.

    It is the number of a suffix such as -b8, or 4 if there is no suffix.
    """
    match = PUBLIC_NAME.fullmatch(name.rstrip("/").rpartition("/")[2])
    return int(match["block_size"] or PUBLIC_BLOCK_SIZE) if match else None


def read_config(config: ConfigFile, generation: ConfigFile | None, name: str) -> ModelConfig:
    """Read the shape. Block size and mask token come from the public name if the files do not tell them."""
    fields = standard_fields(config, generation)
    config.neutral(UNSUPPORTED)
    config.full_attention(fields["num_hidden_layers"])
    block_size = block_size_from_name(name)
    told = {} if block_size is None else {"block_size": block_size, "mask_token_id": PUBLIC_MASK_TOKEN_ID}
    named = {field: value for field, value in told.items() if fields[field] is None}
    return ModelConfig(**fields | named, named=tuple(named))


def layout(config: ModelConfig) -> Layout:
    """Return the layout of Qwen3's tensors. The network has q, k and v in one matrix, and gate and up in another."""
    hidden, head_dim, intermediate = config.hidden_size, config.head_dim, config.intermediate_size
    q, kv = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
    pieces = [_piece("model.embed_tokens", (config.vocab_size, hidden))]
    for index in range(config.num_hidden_layers):
        attention, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        pieces += [
            _piece(f"model.layers.{index}.input_layernorm", (hidden,)),
            _piece(f"{attention}.q_proj", (q, hidden), f"{attention}.qkv_proj", shared=0),
            _piece(f"{attention}.k_proj", (kv, hidden), f"{attention}.qkv_proj", shared=0),
            _piece(f"{attention}.v_proj", (kv, hidden), f"{attention}.qkv_proj", shared=0),
            _piece(f"{attention}.q_norm", (head_dim,)),
            _piece(f"{attention}.k_norm", (head_dim,)),
            _piece(f"{attention}.o_proj", (hidden, q), shared=1),
            _piece(f"model.layers.{index}.post_attention_layernorm", (hidden,)),
            _piece(f"{mlp}.gate_proj", (intermediate, hidden), f"{mlp}.gate_up_proj", shared=0),
            _piece(f"{mlp}.up_proj", (intermediate, hidden), f"{mlp}.gate_up_proj", shared=0),
            _piece(f"{mlp}.down_proj", (hidden, intermediate), shared=1),
        ]
    pieces.append(_piece("model.norm", (hidden,)))
    if config.tie_word_embeddings:
        return Layout(tuple(pieces), copies={"lm_head.weight": "model.embed_tokens.weight"})
    return Layout((*pieces, _piece("lm_head", (config.vocab_size, hidden))))


def _piece(key: str, shape: tuple[int, ...], parameter: str = "", shared: int | None = None) -> Piece:
    """Return the weight of a checkpoint's module. The network's module is `parameter`, by default of the same name."""
    return Piece(f"{key}.weight", shape, f"{parameter or key}.weight", shared=shared)


def network(config: ModelConfig) -> "SDARForCausalLM":
    from simsd.models.sdar_network import SDARForCausalLM  # This imports torch.

    return SDARForCausalLM(config)


SDAR = Family(read_config, layout, network, end_of_turn=("<|im_end|>",))
