"""What the tools know about Cohort's files: which there are, what each includes, and their state."""

import hashlib
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def files(*patterns):
    """The files that match, as paths relative to the root, sorted: files('cohort/**/*.h')."""
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if (ROOT / path).is_file())


def includes(path):
    """The files of this repository that `path` includes itself, relative to the root."""
    text = (ROOT / path).read_text()
    named = (pathlib.Path(name) for name in _INCLUDE.findall(text))
    return [name for name in named if (ROOT / name).is_file()]


def closure(path):
    """`path` and every file of this repository that it includes, directly or not, sorted."""
    seen, todo = set(), [pathlib.Path(path)]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo.extend(includes(current))
    return sorted(seen)


class PassedBefore:
    """Remembers, across runs, which checks passed on which contents.

    A check is known by the arguments that decide its outcome and the bytes of the files that it
    reads; their times do not matter.

        passed = PassedBefore(build / 'lint', version(compiler))
        if not passed.has(command, closure(header)):
            …  # runs the command, and then, if it succeeds:
            passed.add(command, closure(header))
    """

    def __init__(self, folder, *common):
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._common = [str(part) for part in common]

    def _mark(self, arguments, paths):
        digest = hashlib.sha256()
        for part in [*self._common, *map(str, arguments), *map(str, paths)]:
            digest.update(part.encode() + b'\0')
        for path in paths:
            digest.update(hashlib.sha256((ROOT / path).read_bytes()).digest())
        return self._folder / digest.hexdigest()

    def has(self, arguments, paths):
        return self._mark(arguments, paths).exists()

    def add(self, arguments, paths):
        self._mark(arguments, paths).touch()


def compiler_flags(build):
    """The flags with which a file that uses Cohort is compiled, as the build folder has them."""
    return (pathlib.Path(build) / 'compile_flags.txt').read_text().split('\n')[:-1]


def run(command, **options):
    """Runs a command and returns its CompletedProcess: messages in English, output as text."""
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          env=dict(os.environ, LC_ALL='C'), **options)


def version(compiler):
    return run([compiler, '--version']).stdout.splitlines()[0]
