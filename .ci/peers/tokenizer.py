#!/usr/bin/env python3
"""Makes the tokenizer that the peers are given: tokenizer.py FOLDER

Byte-level BPE of 4,000 entries, trained on sentences that a fixed seed puts together, so that nothing is fetched and
everybody has the same one. Needs the packages `tokenizers` and `transformers`.
"""

import itertools
import random
import sys

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"


def sentences(count, seed=7):
    draw = random.Random(seed)
    syllables = ["".join(pair) for pair in itertools.product(CONSONANTS, VOWELS)]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(3000)]
    # The common ones come often, as in a language: rank r about 1/r of the time.
    weights = [1 / (rank + 1) for rank in range(len(words))]
    for _ in range(count):
        yield " ".join(draw.choices(words, weights, k=draw.randint(5, 20))).capitalize() + "."


def main():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(20000), trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", bos_token="<|end|>", pad_token="<|end|>", model_max_length=100000
    ).save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
