"""``python -m bench [nexmark | report | linearity | json] …``; others: bench.kernels, bench.latency, bench.python_functions."""

import sys


def main(argv: list[str]) -> int:
    if argv[:1] == ["linearity"]:
        from bench import linearity

        return linearity.main(argv[1:])
    if argv[:1] == ["json"]:
        from bench import json_input

        return json_input.main(argv[1:])
    from bench.nexmark import run

    if argv[:1] == ["report"]:
        return run.again(argv[1:])
    return run.main(argv[1:] if argv[:1] == ["nexmark"] else argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
