"""Reads the files of `bench_input write`, or Fashion-MNIST, as users of other systems do.

bench_peers_input.py tensorflow|dataloader <case> <folder> <seconds> prints elements/s: those of the
fastest of the system's settings. The cases are those of bench/input.cpp.
"""

import gzip
import pathlib
import statistics
import sys
import time

import numpy as np

BATCH = 256
FASHION_MNIST = pathlib.Path('/usr/share/datasets/fashion-mnist')


def fashion_mnist():
    """Images [60000, 28, 28] and labels [60000], of bytes."""
    images = gzip.decompress((FASHION_MNIST / 'train-images-idx3-ubyte.gz').read_bytes())
    labels = gzip.decompress((FASHION_MNIST / 'train-labels-idx1-ubyte.gz').read_bytes())
    return (np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28),
            np.frombuffer(labels, np.uint8, offset=8))


def tensorflow_settings(case, folder):
    """Datasets that do the same: plain, and with AUTOTUNE wherever there is one."""
    import tensorflow as tf
    tune = tf.data.AUTOTUNE

    def parse(records):
        parsed = tf.io.parse_example(records, {
            'image': tf.io.FixedLenFeature([], tf.string),
            'label': tf.io.FixedLenFeature([], tf.int64)})
        images = tf.reshape(tf.io.decode_raw(parsed['image'], tf.uint8), [-1, 28, 28])
        return images, parsed['label']

    if case.startswith('shuffle_batch'):
        slices = tf.data.Dataset.from_tensor_slices(fashion_mnist())
        batches = slices.shuffle(int(case.rsplit('_', 1)[1])).batch(BATCH)
        return [batches, batches.prefetch(tune)]
    records = tf.data.TFRecordDataset(str(folder / case))
    tuned = tf.data.TFRecordDataset(str(folder / case), num_parallel_reads=tune)
    plain = records.batch(BATCH)
    tuned = tuned.batch(BATCH, num_parallel_calls=tune)
    if case == 'parse_example':
        return [plain.map(parse), plain.map(parse, num_parallel_calls=tune).prefetch(tune),
                tuned.map(parse, num_parallel_calls=tune).prefetch(tune)]
    return [plain, plain.prefetch(tune), tuned.prefetch(tune)]


def dataloader_settings(case, _):
    """DataLoader with two workers. It shuffles all there is, whatever the buffer."""
    import torch
    assert case.startswith('shuffle_batch'), case
    images, labels = (torch.from_numpy(array.copy()) for array in fashion_mnist())
    dataset = torch.utils.data.TensorDataset(images, labels)
    return [torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=2,
                                        persistent_workers=True)]


def elements_per_second(batches, seconds):
    """The median over passes, or over the time there is."""
    def one_pass():
        count, begin = 0, time.perf_counter()
        for batch in batches:
            count += len(batch[0] if isinstance(batch, (tuple, list)) else batch)
            if time.perf_counter() - begin > seconds:
                break
        return count / (time.perf_counter() - begin)

    one_pass()
    rates, begin = [], time.perf_counter()
    while not rates or time.perf_counter() - begin < seconds:
        rates.append(one_pass())
    return statistics.median(rates)


def main():
    system, case, folder, seconds = sys.argv[1:]
    settings = {'tensorflow': tensorflow_settings, 'dataloader': dataloader_settings}[system]
    all_settings = settings(case, pathlib.Path(folder))
    print(max(elements_per_second(batches, float(seconds) / len(all_settings))
              for batches in all_settings))


main()
