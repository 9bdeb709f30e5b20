#!/usr/bin/env python3
"""Writes tests/data/input: files of TensorFlow and NumPy, and what is in them.

The tests read these files, so that the readers are held to what those programs write, and not only
to what our own writers do. expected.json has, by the names of files, their content as TensorFlow
and NumPy themselves read it. Run it in a Python environment with `pip install tensorflow-cpu numpy`.
"""

import json
import pathlib
import shutil
import struct
import zlib

import numpy as np
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent / 'tests/data/input'
random = np.random.default_rng(7)
expected = {}


def write_records():
    records = [b'', b'a', bytes(range(256)), random.bytes(3000), b'z' * 5000]
    for compression in ['', 'GZIP', 'ZLIB']:
        name = f'records{"_" if compression else ""}{compression.lower()}.tfrecord'
        with tf.io.TFRecordWriter(str(ROOT / name), compression) as writer:
            for record in records:
                writer.write(record)
        read = tf.data.TFRecordDataset(str(ROOT / name), compression)
        expected[name] = [record.numpy().hex() for record in read]


def write_examples():
    def feature(**kind):
        (name, values), = kind.items()
        lists = {'bytes': tf.train.BytesList, 'float': tf.train.FloatList, 'int64': tf.train.Int64List}
        return tf.train.Feature(**{f'{name}_list': lists[name](value=values)})

    examples = [
        {'image': feature(bytes=[bytes(range(16))]), 'label': feature(int64=[3]),
         'weights': feature(float=[0.5, -1.25, 3e38]), 'words': feature(bytes=[b'one', b'', b'three'])},
        {'image': feature(bytes=[bytes(16)]), 'label': feature(int64=[-(2 ** 63)]),
         'weights': feature(float=[]), 'words': feature(bytes=[])},
        {'image': feature(bytes=[b'\xff' * 16]), 'label': feature(int64=[2 ** 63 - 1]),
         'weights': feature(float=[1.0]), 'words': feature(bytes=['Grüße'.encode()])},
    ]
    with tf.io.TFRecordWriter(str(ROOT / 'examples.tfrecord')) as writer:
        for features in examples:
            writer.write(tf.train.Example(features=tf.train.Features(feature=features))
                         .SerializeToString())
    records = list(tf.data.TFRecordDataset(str(ROOT / 'examples.tfrecord')))
    parsed = tf.io.parse_example(records, {
        'image': tf.io.FixedLenFeature([], tf.string), 'label': tf.io.FixedLenFeature([], tf.int64),
        'weights': tf.io.VarLenFeature(tf.float32), 'words': tf.io.VarLenFeature(tf.string)})
    expected['examples.tfrecord'] = {
        'image': [value.hex() for value in parsed['image'].numpy()],
        'label': parsed['label'].numpy().tolist(),
        'weights': tf.sparse.to_dense(parsed['weights']).numpy().tolist(),
        'words': [[word.hex() for word in row] for row in
                  tf.sparse.to_dense(parsed['words'], default_value=b'').numpy().tolist()]}


def plain(array):
    """The elements in C order, as JSON has numbers; a complex one is two."""
    if array.dtype.kind == 'c':
        array = np.stack([array.real, array.imag], -1)
    return array.flatten().tolist()


def write_arrays():
    arrays = {'scalar': np.float32(2.5), 'empty': np.zeros((0, 3), np.int16),
              'one': np.arange(5, dtype=np.int64)}
    for kind in ['b1', 'u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', 'c8', 'c16']:
        numbers = random.integers(0, 100, (2, 3, 4)) - (0 if kind in ('b1', 'u1') else 50)
        array = (numbers % 2 if kind == 'b1' else numbers).astype(kind)
        if kind[0] == 'c':
            array = array + 1j * array[::-1]
        arrays[kind] = array.astype(kind)
        arrays[f'{kind}_big'] = array.astype(f'>{kind}')
        arrays[f'{kind}_fortran'] = np.asfortranarray(array.astype(kind))
    for name, array in arrays.items():
        array = np.asanyarray(array)
        np.save(ROOT / f'{name}.npy', array)
        expected[f'{name}.npy'] = {'dtype': array.dtype.newbyteorder('=').str[1:],
                                   'shape': array.shape, 'values': plain(array)}
    for version in [(2, 0), (3, 0)]:
        name = f'version{version[0]}.npy'
        with open(ROOT / name, 'wb') as file:
            np.lib.format.write_array(file, arrays['one'], version)
        expected[name] = {'dtype': 'i8', 'shape': [5], 'values': [0, 1, 2, 3, 4]}


def png(width, height, depth, color, rows, palette=b''):
    """A PNG that tf.io.encode_png can't write; rows have their filter bytes."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    header = struct.pack('>IIBBBBB', width, height, depth, color, 0, 0, 0)
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + (chunk(b'PLTE', palette) if palette else b'')
            + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def write_image(name, data, decode):
    (ROOT / name).write_bytes(data)
    expected[name] = [{'channels': channels, 'shape': image.shape, 'values': image.flatten().tolist()}
                      for channels, image in decode.items()]


def write_images():
    y, x = np.mgrid[0:6, 0:8]
    color = np.stack([x * 30, y * 40, (x + y) * 15], -1).astype(np.uint8)
    shapes = {'gray': color[..., :1], 'gray_alpha': color[..., :2], 'color': color,
              'color_alpha': np.concatenate([color, 255 - color[..., :1]], -1)}
    for name, pixels in shapes.items():
        data = tf.io.encode_png(pixels).numpy()
        write_image(f'{name}.png', data, {0: tf.io.decode_png(data).numpy()})
    deep = color.astype(np.uint16) * 257
    data = tf.io.encode_png(deep).numpy()
    write_image('color16.png', data, {0: color})
    palette = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7])
    data = png(4, 2, 2, 3, b'\x00\x1b\x00\xe4', palette)
    write_image('palette.png', data, {3: tf.io.decode_png(data, channels=3).numpy()})
    bits = np.array([[1, 0, 1, 1, 0, 0, 1, 0]], np.uint8)[..., None] * 255
    write_image('bits.png', png(8, 1, 1, 0, b'\x00\xb2'), {0: bits})
    for name in ['gray', 'color']:
        data = tf.io.encode_jpeg(shapes[name], quality=95).numpy()
        images = {n: tf.io.decode_jpeg(data, channels=n, dct_method='INTEGER_ACCURATE').numpy()
                  for n in [0, 1, 3]}
        write_image(f'{name}.jpg', data, images)
    data = tf.io.encode_jpeg(color, progressive=True).numpy()
    write_image('progressive.jpg', data,
                {0: tf.io.decode_jpeg(data, dct_method='INTEGER_ACCURATE').numpy()})


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    write_records()
    write_examples()
    write_arrays()
    write_images()
    (ROOT / 'expected.json').write_text(
        '{\n' + ',\n'.join(f'{json.dumps(name)}: {json.dumps(value)}'
                           for name, value in sorted(expected.items())) + '\n}\n')


main()
