"""Models of transformers with what people put on them, and those that take more than one kind of
input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tests.sweep import configurations as made
from tests.sweep.architectures import MORE
from tests.sweep.configurations import ids, mask
from tests.sweep.judging import Architecture

Call = Callable[[int, int], Mapping[str, Any]]


def _labelled(b: int, n: int) -> dict[str, Any]:
    return {**made.masked(b, n), "labels": ids(b, n)}


def _classified(b: int, n: int) -> dict[str, Any]:
    return {**made.masked(b, n), "labels": torch.randint(0, 2, (b,))}


def _tagged(b: int, n: int) -> dict[str, Any]:
    return {**made.masked(b, n), "labels": torch.randint(0, 2, (b, n))}


def _answered(b: int, n: int) -> dict[str, Any]:
    ends = {name: torch.randint(0, n, (b,)) for name in ("start_positions", "end_positions")}
    return {**made.masked(b, n), **ends}


def _choices(b: int, n: int) -> dict[str, Any]:
    return {
        "input_ids": ids(3 * b, n).view(b, 3, n),
        "attention_mask": mask(3 * b, n).view(b, 3, n),
    }


def _summed(b: int, n: int) -> dict[str, Any]:
    return {**made.masked(b, n), "labels": ids(b, n // 2)}


def _boxes(b: int, n: int) -> dict[str, Any]:
    corners = torch.randint(0, 10, (b, n, 2))
    return {**made.masked(b, n), "bbox": torch.cat([corners, corners + 5], -1)}


def _frames(b: int, n: int) -> dict[str, Any]:
    return {"input_features": torch.randn(b, 16 + 4 * n, 16)}


def _mels(b: int, n: int) -> dict[str, Any]:
    return {"input_features": torch.randn(b, 16, 128), "decoder_input_ids": ids(b, n)}


def _spectrum(b: int, n: int) -> dict[str, Any]:
    return {"input_values": torch.randn(b, 64, 16)}


def _mono(b: int, n: int) -> dict[str, Any]:
    return {"input_values": torch.randn(b, 1, 640 * n)}


def _blocks(b: int, n: int) -> dict[str, Any]:
    """Images of whole blocks of thirty-two."""
    return {"pixel_values": torch.randn(b, 3, 32 * (n // 4), 32 * (n // 4))}


def _video(b: int, n: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(b, 4, 3, 32, 32)}


def _series(b: int, n: int) -> dict[str, Any]:
    return {"past_values": torch.randn(b, 32, 2)}


def _forecast(b: int, n: int) -> dict[str, Any]:
    past = {"past_values": torch.randn(b, 15), "past_observed_mask": torch.ones(b, 15)}
    times = {
        "past_time_features": torch.randn(b, 15, 1),
        "future_time_features": torch.randn(b, 6, 1),
    }
    return {**past, **times, "future_values": torch.randn(b, 6)}


def _returns(b: int, n: int) -> dict[str, Any]:
    made_of = {
        name: torch.randn(b, n, size)
        for name, size in (("states", 5), ("actions", 3), ("returns_to_go", 1))
    }
    times = torch.arange(n).expand(b, n)
    return {
        **made_of,
        "timesteps": times,
        "attention_mask": mask(b, n),
        "rewards": torch.randn(b, n, 1),
    }


def _seen(b: int, n: int) -> dict[str, Any]:
    """Text in which sixteen tokens stand for an image each."""
    text = ids(b, n)
    return {
        "input_ids": torch.cat([torch.full((b, 16), 99), text.clamp(max=98)], 1),
        **made.image(b, n),
    }


def _patches(b: int, n: int) -> dict[str, Any]:
    """Images in patches of their own number each, as Qwen2-VL takes them."""
    grid = torch.tensor([[1, 4, 4]] * b)
    text = torch.cat([torch.full((b, 4), 99), ids(b, n).clamp(max=90)], 1)
    kinds = (text == 99).int()
    pixels = torch.randn(16 * b, 3 * 2 * 8 * 8)
    return {
        "input_ids": text,
        "pixel_values": pixels,
        "image_grid_thw": grid,
        "mm_token_type_ids": kinds,
    }


_RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
}
_DETR: dict[str, Any] = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
}
_DETR |= {
    "backbone_config": {**_RESNET, "out_features": ["stage4"]},
    "num_queries": 6,
    "num_labels": 5,
}
_SCALES = {**_DETR, "backbone_config": {**_RESNET, "out_features": ["stage2", "stage3", "stage4"]}}
_RT = {
    "num_queries": 6,
    "num_labels": 5,
    "num_denoising": 0,
    "encoder_in_channels": [16, 24, 32],
    "decoder_in_channels": [32, 32, 32],
    "encoder_hidden_dim": 32,
    "encoder_attention_heads": 4,
    "hidden_expansion": 0.5,
    "anchor_image_size": None,
    "backbone_config": {
        "model_type": "rt_detr_resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "out_features": ["stage2", "stage3", "stage4"],
        "layer_type": "basic",
    },
}
_TIMES: dict[str, Any] = {
    "prediction_length": 6,
    "context_length": 8,
    "num_time_features": 1,
    "lags_sequence": [1, 2, 7],
}
_PATCHED = {
    "num_input_channels": 2,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "prediction_length": 4,
}
_DINO = {
    "model_type": "dinov2",
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "patch_size": 8,
}
_DINO |= {
    "image_size": 32,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
    "reshape_hidden_states": False,
}
_CONVNEXT = {"model_type": "convnext", "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
_CONVNEXT |= {"out_features": ["stage1", "stage2", "stage3", "stage4"]}
_TEXT = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "head_dim": 8,
}
_TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
_TEXT |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
}
_VISION |= {"num_attention_heads": 4, "image_size": 32, "patch_size": 8, "projection_dim": 16}
_LLAVA = {
    "text_config": {"model_type": "llama", **_TEXT},
    "vision_config": _VISION,
    "image_token_id": 99,
}
_LLAVA |= {"image_token_index": 99, "vision_feature_layer": -1}
_QWEN: dict[str, Any] = {
    "text_config": {
        **_TEXT,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
    },
    "vision_config": {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 4,
        "patch_size": 8,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "mlp_ratio": 2,
        "in_channels": 3,
    },
    "image_token_id": 99,
    "video_token_id": 98,
    "vision_start_token_id": 97,
    "vision_end_token_id": 96,
}

HEADS: dict[str, tuple[str, str, dict[str, Any], Call]] = {
    "llama, language with its loss": ("llama", "LlamaForCausalLM", {}, _labelled),
    "mixtral, language with its loss": (
        "mixtral",
        "MixtralForCausalLM",
        {"output_router_logits": True},
        _labelled,
    ),
    "bert, masked words": ("bert", "BertForMaskedLM", {}, _labelled),
    "bert, reranker": ("bert", "BertForSequenceClassification", {}, _classified),
    "xlm-roberta, reranker": (
        "xlm-roberta",
        "XLMRobertaForSequenceClassification",
        {"num_labels": 1},
        made.masked,
    ),
    "modernbert, reranker": ("modernbert", "ModernBertForSequenceClassification", {}, _classified),
    "llama, reranker": ("llama", "LlamaForSequenceClassification", {}, _classified),
    "qwen3, reranker": ("qwen3", "Qwen3ForSequenceClassification", {"num_labels": 1}, made.masked),
    "bert, words classified": ("bert", "BertForTokenClassification", {}, _tagged),
    "deberta-v2, answers": ("deberta-v2", "DebertaV2ForQuestionAnswering", {}, _answered),
    "bert, choices": ("bert", "BertForMultipleChoice", {}, _choices),
    "distilbert, words classified": ("distilbert", "DistilBertForTokenClassification", {}, _tagged),
    "t5, with its loss": (
        "t5",
        "T5ForConditionalGeneration",
        {"decoder_start_token_id": 0},
        _summed,
    ),
    "bart, with its loss": ("bart", "BartForConditionalGeneration", {}, _summed),
    "t5, encoder": ("t5", "T5EncoderModel", {}, made.masked),
    "clip, text embeddings": ("clip_text_model", "CLIPTextModelWithProjection", {}, made.masked),
    "clip, image embeddings": (
        "clip_vision_model",
        "CLIPVisionModelWithProjection",
        {},
        made.image,
    ),
    "dpr, questions": ("dpr", "DPRQuestionEncoder", {}, made.masked),
    "layoutlm, boxes": (
        "layoutlm",
        "LayoutLMForTokenClassification",
        {"max_2d_position_embeddings": 32},
        _boxes,
    ),
    "lilt, boxes": (
        "lilt",
        "LiltModel",
        {"hidden_size": 48, "max_2d_position_embeddings": 32},
        _boxes,
    ),
    "vit, classes": ("vit", "ViTForImageClassification", {}, made.image),
    "yolos, detection": (
        "yolos",
        "YolosForObjectDetection",
        {"num_detection_tokens": 6},
        made.any_image,
    ),
    "detr, detection": ("detr", "DetrForObjectDetection", _DETR, made.any_image),
    "conditional detr, detection": (
        "conditional_detr",
        "ConditionalDetrForObjectDetection",
        _DETR,
        made.any_image,
    ),
    "dab-detr, detection": ("dab-detr", "DabDetrForObjectDetection", _DETR, made.any_image),
    "deformable detr, detection": (
        *("deformable_detr", "DeformableDetrForObjectDetection"),
        *({**_SCALES, "num_feature_levels": 3}, made.any_image),
    ),
    "rt-detr, detection": ("rt_detr", "RTDetrForObjectDetection", _RT, _blocks),
    "rt-detr v2, detection": ("rt_detr_v2", "RTDetrV2ForObjectDetection", _RT, _blocks),
    "segformer, segmentation": (
        "segformer",
        "SegformerForSemanticSegmentation",
        {"decoder_hidden_size": 32},
        made.any_image,
    ),
    "upernet, segmentation": (
        *("upernet", "UperNetForSemanticSegmentation"),
        *(
            {"backbone_config": _CONVNEXT, "hidden_size": 32, "use_auxiliary_head": False},
            made.any_image,
        ),
    ),
    "mobilevit, segmentation": ("mobilevit", "MobileViTForSemanticSegmentation", {}, made.image),
    "beit, segmentation": (
        *("data2vec-vision", "Data2VecVisionForSemanticSegmentation"),
        *({"num_hidden_layers": 4, "out_indices": [0, 1, 2, 3]}, made.image),
    ),
    "mobilenet v2, segmentation": (
        "mobilenet_v2",
        "MobileNetV2ForSemanticSegmentation",
        {},
        made.image,
    ),
    "glpn, depth": ("glpn", "GLPNForDepthEstimation", {"decoder_hidden_size": 32}, _blocks),
    "dpt, depth": (
        *("dpt", "DPTForDepthEstimation"),
        *(
            {
                "num_hidden_layers": 4,
                "backbone_out_indices": [0, 1, 2, 3],
                "fusion_hidden_size": 16,
            },
            made.image,
        ),
    ),
    "depth anything": (
        *("depth_anything", "DepthAnythingForDepthEstimation"),
        *(
            {
                "backbone_config": _DINO,
                "patch_size": 8,
                "reassemble_hidden_size": 32,
                "fusion_hidden_size": 16,
                "head_hidden_size": 8,
            },
            made.any_image,
        ),
    ),
    "swin2sr, superresolution": (
        *("swin2sr", "Swin2SRForImageSuperResolution"),
        *(
            {
                "embed_dim": 16,
                "window_size": 4,
                "patch_size": 1,
                "depths": [1, 1],
                "num_heads": [2, 2],
            },
            made.any_image,
        ),
    ),
    "superpoint, keypoints": (
        *("superpoint", "SuperPointForKeypointDetection"),
        *(
            {
                "encoder_hidden_sizes": [8, 8, 16, 16],
                "decoder_hidden_size": 16,
                "descriptor_decoder_dim": 16,
            },
            made.any_image,
        ),
    ),
    "whisper": ("whisper", "WhisperModel", {}, _mels),
    "speech to text": (
        *("speech_to_text", "Speech2TextModel"),
        *(
            {"input_feat_per_channel": 16, "conv_channels": 32},
            lambda b, n: {**_frames(b, n), "decoder_input_ids": ids(b, n)},
        ),
    ),
    "wav2vec2, letters": ("wav2vec2", "Wav2Vec2ForCTC", {}, made.wave),
    "wav2vec2-bert": (
        "wav2vec2-bert",
        "Wav2Vec2BertModel",
        {"feature_projection_input_dim": 16},
        _frames,
    ),
    "audio spectrogram": (
        *("audio-spectrogram-transformer", "ASTModel"),
        *(
            {
                "num_mel_bins": 16,
                "max_length": 64,
                "patch_size": 8,
                "frequency_stride": 8,
                "time_stride": 8,
            },
            _spectrum,
        ),
    ),
    "dac, sound in codes": (
        *("dac", "DacModel"),
        *(
            {
                "encoder_hidden_size": 8,
                "decoder_hidden_size": 32,
                "downsampling_ratios": [2, 4],
                "upsampling_ratios": [4, 2],
                "n_codebooks": 2,
                "codebook_size": 16,
            },
            _mono,
        ),
    ),
    "encodec, sound in codes": (
        *("encodec", "EncodecModel"),
        *(
            {
                "num_filters": 4,
                "upsampling_ratios": [4, 2],
                "codebook_size": 16,
                "codebook_dim": 32,
                "hidden_size": 32,
            },
            _mono,
        ),
    ),
    "videomae": ("videomae", "VideoMAEForVideoClassification", {"num_frames": 4}, _video),
    "timesformer": ("timesformer", "TimesformerModel", {"num_frames": 4}, _video),
    "vivit": ("vivit", "VivitModel", {"num_frames": 4, "tubelet_size": [2, 8, 8]}, _video),
    "patchtst, forecast": ("patchtst", "PatchTSTForPrediction", _PATCHED, _series),
    "patchtsmixer, forecast": ("patchtsmixer", "PatchTSMixerForPrediction", _PATCHED, _series),
    "time series transformer": (
        "time_series_transformer",
        "TimeSeriesTransformerModel",
        _TIMES,
        _forecast,
    ),
    "informer": ("informer", "InformerModel", _TIMES, _forecast),
    "autoformer": ("autoformer", "AutoformerModel", {**_TIMES, "label_length": 4}, _forecast),
    "decision transformer": (
        "decision_transformer",
        "DecisionTransformerModel",
        {"state_dim": 5, "act_dim": 3},
        _returns,
    ),
    "llava": ("llava", "LlavaForConditionalGeneration", _LLAVA, _seen),
    "qwen2-vl": ("qwen2_vl", "Qwen2VLModel", _QWEN, _patches),
    "blip, captions": ("blip", "BlipForConditionalGeneration", {}, made.both),
    "git, captions": ("git", "GitForCausalLM", {}, made.both),
    "trocr, decoder": ("trocr", "TrOCRForCausalLM", {}, made.text),
}


def heads() -> Iterator[Architecture]:
    """All of them."""
    for name, (kind, model_class, more, call) in HEADS.items():
        make = functools.partial(made.built, kind, {**MORE.get(kind, {}), **more}, model_class)
        yield Architecture(name, make, {"plain": call})
