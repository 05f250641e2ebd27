"""Which architectures of transformers are swept: by what they take, with what a small one needs
beside the sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from tests.sweep import configurations as made
from tests.sweep.judging import Architecture

DECODERS = """
    gpt2 gpt_neo gpt_neox gpt_bigcode gptj llama mistral mixtral qwen2 qwen3 qwen2_moe gemma gemma2
    phi phi3 opt bloom falcon mpt codegen stablelm starcoder2 cohere granite olmo olmo2 persimmon
    biogpt xglm ctrl openai-gpt mamba rwkv nemotron glm gemma3_text qwen3_moe smollm3 ernie4_5 arcee
    helium lfm2 seed_oss gpt_oss mamba2 recurrent_gemma deepseek_v2 deepseek_v3 olmoe exaone4 glm4
    granitemoe cohere2 phimoe diffllama bitnet doge jamba zamba2 falcon_h1 bamba minimax dots1
    apertus hunyuan_v1_dense gpt-sw3 afmoe aria_text cohere2_moe cwm ernie4_5_moe exaone_moe
    falcon_mamba flex_olmo glm4_moe glm4_moe_lite glm_moe_dsa gpt_neox_japanese granite_swa
    granitemoe_swa granitemoehybrid granitemoeshared hrm_text hunyuan_v1_moe hy_v3 internlm3 jais2
    jetmoe laguna lfm2_moe llama4_text longcat_flash mellum minicpm3 minimax_m2 ministral ministral3
    modernbert-decoder nanochat nemotron_h olmo3 olmo_hybrid qwen3_next qwen3_5_text
    qwen3_5_moe_text solar_open vaultgemma xlnet xlstm youtu zamba zaya gemma4_text
"""
ENCODERS = """
    bert roberta distilbert albert electra deberta deberta-v2 mpnet camembert convbert roformer
    squeezebert mobilebert nystromformer fnet ernie layoutlm xlm megatron-bert rembert data2vec-text
    ibert yoso modernbert esm xlm-roberta splinter longformer big_bird luke mra xmod roc_bert canine
    bert-generation clip_text_model dpr eurobert flaubert gte jina_embeddings_v3 lilt markuplm
    nomic_bert roberta-prelayernorm reformer tapas ultrabert xlm-roberta-xl esmc
    openai_privacy_filter visual_bert
"""
PAIRS = """
    t5 bart mbart pegasus marian blenderbot m2m_100 mt5 led longt5 bigbird_pegasus pegasus_x plbart
    prophetnet switch_transformers umt5 nllb-moe t5gemma fsmt mvp blenderbot-small
"""
IMAGES = """
    vit deit beit resnet dinov2 regnet mobilenet_v2 efficientnet poolformer pvt bit vit_msn focalnet
    mobilevit dinov2_with_registers ijepa mobilenet_v1 aimv2_vision_model clip_vision_model
    siglip_vision_model vit_mae
"""
FREE_IMAGES = """
    swin segformer cvt swinv2 convnext convnextv2 data2vec-vision dinov3_vit dinov3_convnext dpt
    glpn hgnet_v2 pvt_v2 swiftformer vitdet yolos radio pixio sapiens2 donut-swin swin2sr
    maskformer-swin textnet
"""
WAVES = "data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm"
BOTH = "clip siglip blip flava vilt altclip chinese_clip clipseg groupvit owlvit metaclip_2 git"
MORE: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "n_groups": 2, "chunk_size": 8},
    "falcon_h1": {
        "mamba_d_ssm": 64,
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8},
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
    "deepseek_v2": {
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
    },
    "deepseek_v3": {
        "head_dim": 8,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_group": 2,
    },
    "longcat_flash": {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "head_dim": 8},
    "youtu": {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "head_dim": 8},
    "glm_moe_dsa": {"q_lora_rank": 16, "kv_lora_rank": 16, "index_topk": 4},
    "glm4_moe_lite": {"q_lora_rank": 16, "kv_lora_rank": 16},
    "dots1": {"n_shared_experts": 1},
    "xmod": {"default_language": "en_XX"},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "zaya": {"num_experts_per_tok": 1},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8},
    "reformer": {
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [8, 8],
        "num_buckets": 4,
        "attn_layers": ["local"],
    },
    "lilt": {"hidden_size": 48},
    "gemma4_text": {
        "vocab_size_per_layer_input": 100,
        "hidden_size_per_layer_input": 8,
        "global_head_dim": 8,
    },
    "xlnet": {"d_inner": 64},
    "fsmt": {"src_vocab_size": 100, "tgt_vocab_size": 100, "langs": ["en", "de"]},
    "efficientnet": {"hidden_dim": 1280, "width_coefficient": 1.0, "depth_coefficient": 0.4},
    "hgnet_v2": {
        "embedding_size": 16,
        "stem_channels": [3, 8, 16],
        "stage_in_channels": [16, 16, 24, 32],
        "stage_mid_channels": [8, 8, 8, 8],
        "stage_out_channels": [16, 24, 32, 32],
    },
    "vit_mae": {"mask_ratio": 0.5},
    "bit": {"num_groups": 8, "hidden_sizes": [32, 32, 64, 64]},
    "swin": {
        "embed_dim": 16,
        "window_size": 4,
        "patch_size": 4,
        "depths": [1, 1],
        "num_heads": [2, 2],
    },
    "swinv2": {"embed_dim": 16, "window_size": 4, "patch_size": 4},
    "donut-swin": {
        "embed_dim": 16,
        "window_size": 4,
        "patch_size": 4,
        "depths": [1, 1],
        "num_heads": [2, 2],
    },
    "maskformer-swin": {"embed_dim": 16, "window_size": 4, "patch_size": 4},
    "swin2sr": {
        "embed_dim": 16,
        "window_size": 4,
        "patch_size": 1,
        "depths": [1, 1],
        "num_heads": [2, 2],
    },
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "mamba_dt_rank": 4,
    },
    "zamba2": {
        "num_hidden_layers": 2,
        "layers_block_type": ["mamba", "hybrid"],
        "n_mamba_heads": 8,
        "mamba_headdim": 8,
        "mamba_d_state": 8,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "use_mem_rope": True,
    },
    "sew": {"squeeze_factor": 2},
    "textnet": {"hidden_sizes": [64, 64, 128, 256, 512]},
}
_SPEECH = {
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_conv_pos_embeddings": 16,
}
_SPEECH |= {"num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2, "mask_time_prob": 0.0}
MORE.update({name: {**_SPEECH, **MORE.get(name, {})} for name in WAVES.split()})
KINDS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "text": (DECODERS + ENCODERS, {"plain": made.text, "mask": made.masked}),
    "pairs": (PAIRS, {"plain": made.pair, "mask": made.masked_pair}),
    "images": (IMAGES, {"plain": made.image}),
    "free images": (FREE_IMAGES, {"plain": made.any_image}),
    "waves": (WAVES, {"plain": made.wave, "mask": made.masked_wave}),
    "both": (BOTH, {"plain": made.both}),
}


def architectures() -> Iterator[Architecture]:
    """Those of transformers."""
    for names, ways in KINDS.values():
        for name in names.split():
            yield Architecture(name, functools.partial(made.built, name, MORE.get(name, {})), ways)
