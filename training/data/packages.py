"""Install the packages that the corpus is made of into a folder of their own.

Only what packages.txt names, in its versions, without dependencies: nothing of it is imported. A
package that ships for this platform alone is taken as it is; only its Python files are read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from training.stages import PACKAGES_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description="Install what the corpus is made of.")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(arguments.out), "-r", str(PACKAGES_FILE)], check=True)


if __name__ == "__main__":
    main()
