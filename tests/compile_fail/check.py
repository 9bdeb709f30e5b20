#!/usr/bin/env python3
"""Checks that wrong code does not compile, and says why in one readable line.

    check.py --compiler g++ --build build/release tests/compile_fail/per_replica.cpp

A file is code that compiles, and cases that must not. A case is a block like this:

    // case: a tensor operation does not take a PerReplica
    // error: one value per replica
    #if CASE == 1
    at::Tensor f(cohort::PerReplica<at::Tensor> x) { return at::relu(x); }
    #endif

The cases are numbered from 1. With a case switched on, the compiler must fail, with exactly one
`static assertion failed`, whose text contains what follows `error:`. With none, it must succeed,
so that a case cannot fail for another reason.

A file that passed is not compiled again until it, or a header of Cohort that it includes, changes.
"""

import argparse
import concurrent.futures
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import sources  # noqa: E402

CASE = re.compile(r'^// case: (?P<name>.+)\n// error: (?P<error>.+)\n#if CASE == (?P<number>\d+)\n',
                  re.MULTILINE)


def parse(path):
    """The cases of a file, as (name, error) in order. Complains about a block in another form."""
    text = path.read_text()
    cases = [(match['name'], match['error']) for match in CASE.finditer(text)]
    numbers = [int(match['number']) for match in CASE.finditer(text)]
    if not cases or numbers != list(range(1, len(cases) + 1)):
        sys.exit(f'{path}: the cases must be numbered from 1, got {numbers}')
    if len(re.findall(r'\bCASE\b', text)) != len(cases):
        sys.exit(f'{path}: CASE is used outside of a block of the form that check.py describes')
    return cases


def precompile(path, command, folder):
    """Compiles what a file includes, once for all cases; returns the options that use it."""
    header = folder / f'{path.stem}.h'
    header.write_text(''.join(re.findall(r'^#include .+\n', path.read_text(), re.MULTILINE)))
    result = sources.run([*command, '-x', 'c++-header', header, '-o', f'{header}.gch'])
    if result.returncode:
        sys.exit(f'{path}: what it includes does not compile:\n{result.stderr}')
    return ['-include', header, '-Winvalid-pch']


def problem_with(error, result):
    """What is wrong with how the compiler reacted, or None. `error` is None for the baseline."""
    if error is None:
        return None if result.returncode == 0 else 'does not compile, with no case switched on'
    if result.returncode == 0:
        return 'compiles, and must not'
    said = [line for line in result.stderr.splitlines() if 'error: static assertion failed' in line]
    if len(said) != 1:
        return f'{len(said)} static assertions failed, expected 1'
    return None if error in said[0] else f'the static assertion does not say "{error}"'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--compiler', required=True)
    parser.add_argument('--build', required=True, type=pathlib.Path)
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('file', type=lambda text: pathlib.Path(text).resolve())
    arguments = parser.parse_args()

    cases = [('no case switched on', None), *parse(arguments.file)]
    command = [arguments.compiler, *sources.compiler_flags(arguments.build)]
    inputs = [*sources.closure(arguments.file), pathlib.Path(__file__)]
    passed = sources.PassedBefore(arguments.build / 'compile_fail',
                                  sources.version(arguments.compiler))
    if passed.has(command, inputs):
        print(f'{len(cases)} cases: nothing changed since they passed')
        return

    with (tempfile.TemporaryDirectory(dir=arguments.build) as folder,
          concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool):
        options = precompile(arguments.file, command, pathlib.Path(folder))
        results = list(pool.map(
            lambda number: sources.run([*command, *options, '-fsyntax-only', f'-DCASE={number}',
                                        arguments.file]),
            range(len(cases))))
    failures = 0
    for (name, error), result in zip(cases, results):
        problem = problem_with(error, result)
        print(f'{"FAILED" if problem else "ok"}: {name}')
        if problem:
            failures += 1
            print(f'{problem}; the compiler said:\n{result.stderr}')
    if failures:
        sys.exit(f'{failures} of {len(cases)} cases failed')
    passed.add(command, inputs)


main()
