#!/usr/bin/env python3
"""Make a tiny Llama checkpoint with random weights and a tokenizer of its own, for engines that load checkpoints.

    checkpoint.py DIR

Needs torch, transformers and tokenizers, which come with vLLM. The weights say nothing; what matters is that the
model loads everywhere, that it is small, and that its byte-level tokenizer makes tokens which are no whole
characters, so that engines hold text back as they do with real models.
"""

import argparse
import builtins
import keyword
import os

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 2048
# vLLM's attention on a CPU takes heads of 32, not of 16.
HEADS, HEAD = 2, 32
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    """A byte-level BPE over Python's own words: any text is a few hundred tokens of it."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    words = " ".join(dir(builtins) + keyword.kwlist)
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
    )
    bpe.train_from_iterator([words] * 5, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT
    return fast, bpe.get_vocab_size()


def model(vocabulary):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HEADS * HEAD,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        tie_word_embeddings=False,
        # Wide, so that the next token is not nearly the same for every context.
        initializer_range=0.2,
    )
    tiny = LlamaForCausalLM(config).float()
    tiny.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2)
    return tiny


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", help="where the checkpoint goes; it must not exist")
    options = parser.parse_args()
    part = options.folder + ".part"
    fast, vocabulary = tokenizer()
    fast.save_pretrained(part)
    model(vocabulary).save_pretrained(part, safe_serialization=True)
    # Whole or not at all.
    os.rename(part, options.folder)


if __name__ == "__main__":
    main()
