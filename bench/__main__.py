"""``python -m bench``: the Nexmark table. Others: bench.kernels, bench.latency, bench.python_functions."""

from bench.nexmark.run import main

raise SystemExit(main())
