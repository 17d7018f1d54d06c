"""Runs the programs that are compared."""

import subprocess
import sys


def run(command):
    """Standard output of a program that must succeed; the command goes to standard error first."""
    command = [str(part) for part in command]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit status {done.returncode} from: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout
