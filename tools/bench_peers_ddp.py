"""Trains a model of bench/models.h with PyTorch's DistributedDataParallel on two processes.

bench_peers_ddp.py mlp|cnn|lm <seconds> prints samples/s.
"""

import statistics
import sys
import time

import torch
from torch import nn

BATCH = {'mlp': 64, 'cnn': 32, 'lm': 8}
TOKENS, WIDTH, LENGTH = 1000, 128, 64


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, TOKENS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, tokens):
        x = (self.embedding(tokens) + self.positions).transpose(0, 1)
        return self.head(self.encoder(x, self.mask)).transpose(0, 1).flatten(0, 1)


def make(name):
    """A model with inputs and targets of one replica."""
    size = BATCH[name]
    if name == 'mlp':
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                              nn.Linear(512, 10))
        return model, torch.randn(size, 784), torch.randint(10, (size,))
    if name == 'cnn':
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                              nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 12 * 12, 128),
                              nn.ReLU(), nn.Linear(128, 10))
        return model, torch.randn(size, 1, 28, 28), torch.randint(10, (size,))
    return (LanguageModel(), torch.randint(TOKENS, (size, LENGTH)),
            torch.randint(TOKENS, (size * LENGTH,)))


def train(rank, store, name, seconds):
    torch.set_num_threads(1)
    torch.distributed.init_process_group('gloo', init_method=f'file://{store}', rank=rank,
                                         world_size=2)
    model, inputs, targets = make(name)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()

    def time_of_a_step(count):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        return (time.perf_counter() - begin) / count

    def steps_in(duration, time_of_one):
        """What rank 0 measured decides: ranks that took different numbers of steps would hang."""
        count = torch.tensor([max(1, round(duration / time_of_one))])
        torch.distributed.broadcast(count, 0)
        return int(count)

    time_of_a_step(3)
    warm = time_of_a_step(steps_in(1, time_of_a_step(3)))
    count = steps_in(0.2, warm)
    times = [time_of_a_step(count) for _ in range(max(3, round(seconds / 0.2)))]
    if rank == 0:
        print(2 * BATCH[name] / statistics.median(times), flush=True)
    torch.distributed.barrier()  # a rank that ends while the other still sends makes that one fail
    torch.distributed.destroy_process_group()


def main():
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (f'{folder}/store', sys.argv[1], float(sys.argv[2])),
                                    nprocs=2)


if __name__ == '__main__':
    main()
