"""`python -m bench.gpu`: checks and times the engine on a CUDA device, with random weights.

Of ours it imports `engine/` and the bench alone. The last thing printed is a table; the same is in
`gpu.json` in the folder `$OUT`, if that is set, after every section.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Run by its path: in its own folder `engine.py` would hide the package `engine`.
    sys.path[0] = str(Path(__file__).parent.parent)

from bench.cuda.command import main

if __name__ == "__main__":
    sys.exit(main())
