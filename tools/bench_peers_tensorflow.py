"""Trains a model of bench/models.h with TensorFlow's MirroredStrategy on two virtual CPUs.

bench_peers_tensorflow.py mlp|cnn|lm <seconds> prints samples/s.
"""

import statistics
import sys
import time

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
BATCH = {'mlp': 64, 'cnn': 32, 'lm': 8}
TOKENS, WIDTH, LENGTH = 1000, 128, 64


class Positions(layers.Layer):
    def build(self, _):
        self.positions = self.add_weight(shape=(LENGTH, WIDTH), initializer='zeros')

    def call(self, x):
        return x + self.positions


def language_model():
    tokens = tf.keras.Input((LENGTH,), dtype='int32')
    x = Positions()(layers.Embedding(TOKENS, WIDTH)(tokens))
    for _ in range(2):
        attention = layers.MultiHeadAttention(4, WIDTH // 4)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization(epsilon=1e-5)(x + attention)
        hidden = layers.Dense(4 * WIDTH, activation='relu')(x)
        x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dense(WIDTH)(hidden))
    return tf.keras.Model(tokens, layers.Dense(TOKENS)(x))


def make_model(name):
    if name == 'mlp':
        return tf.keras.Sequential([
            tf.keras.Input((784,)), layers.Dense(512, activation='relu'),
            layers.Dense(512, activation='relu'), layers.Dense(10)])
    if name == 'cnn':
        return tf.keras.Sequential([
            tf.keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation='relu'),
            layers.Conv2D(64, 3, activation='relu'), layers.MaxPool2D(2), layers.Flatten(),
            layers.Dense(128, activation='relu'), layers.Dense(10)])
    return language_model()


def make_batch(name):
    """Inputs and targets of one replica."""
    random, size = np.random.default_rng(1), BATCH[name]
    if name == 'lm':
        return tuple(tf.constant(random.integers(TOKENS, size=(size, LENGTH)), tf.int32)
                     for _ in range(2))
    shape = (size, 784) if name == 'mlp' else (size, 28, 28, 1)
    return (tf.constant(random.standard_normal(shape), tf.float32),
            tf.constant(random.integers(10, size=size), tf.int32))


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(['cpu:0', 'cpu:1'])
    with strategy.scope():
        model = make_model(name)
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)
    batches = strategy.experimental_distribute_values_from_function(lambda _: make_batch(name))

    def replica_step(batch):
        inputs, targets = batch
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                targets, model(inputs, training=True))
            loss = tf.reduce_mean(losses) / 2
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @tf.function
    def step(batch):
        strategy.run(replica_step, args=(batch,))

    begin = time.perf_counter()
    warm_up = 0
    while warm_up < 3 or time.perf_counter() - begin < 1:
        step(batches)
        warm_up += 1
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        before, count = time.perf_counter(), 0
        while time.perf_counter() - before < 0.2:
            step(batches)
            count += 1
        times.append((time.perf_counter() - before) / count)
    print(2 * BATCH[name] / statistics.median(times))


main()
