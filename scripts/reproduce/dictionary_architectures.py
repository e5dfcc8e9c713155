"""Dictionary architectures beyond the Gated SAE, on SmolLM2-135M: what each is expected to do beside what it does.

    python -m scripts.reproduce.dictionary_architectures --which transcoder

See `dictionary_coders.py` for the transcoder and crosscoder parts.
"""

from __future__ import annotations

import sys

from scripts.reproduce import dictionary_coders
from scripts.reproduce.checks import run

PARTS = {
    "transcoder": dictionary_coders.transcoder,
    "layers": dictionary_coders.layers,
    "models": dictionary_coders.models,
}


def main(argv: list[str] | None = None) -> int:
    assert __doc__ is not None
    return run(__doc__, PARTS, "runs/dictionary_architectures", argv)


if __name__ == "__main__":
    sys.exit(main())
