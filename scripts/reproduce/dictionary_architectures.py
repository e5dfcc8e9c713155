"""Dictionary architectures beyond the Gated SAE, on SmolLM2-135M: what each is expected to do beside what it does.

    python scripts/reproduce/dictionary_architectures.py                      # all
    python scripts/reproduce/dictionary_architectures.py --which transcoder   # one part
    python scripts/reproduce/dictionary_architectures.py --quick              # fewer tokens and steps

The parts are described in `dictionary_coders.py`. What is harvested and tuned is kept in the folder of results.
"""

from __future__ import annotations

import sys

import dictionary_coders
from checks import run

PARTS = {
    "transcoder": dictionary_coders.transcoder,
    "layers": dictionary_coders.layers,
    "models": dictionary_coders.models,
}


def main(argv: list[str] | None = None) -> int:
    return run(__doc__ or "", PARTS, "results/dictionary_architectures", argv)


if __name__ == "__main__":
    sys.exit(main())
