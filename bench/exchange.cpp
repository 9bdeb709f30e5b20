// Messages between workers that are threads: how long one takes, and how that grows with workers.
#include <cohort/collectives/exchange.h>
#include <cohort/distribute/run_workers.h>

#include <optional>
#include <string>
#include <vector>

#include "harness.h"

namespace {

constexpr double kMicrosecond = 1e-6;

using Bytes = std::vector<std::byte>;

void send(cohort::Exchange& exchange, int to, const Bytes& bytes) {
  cohort::Exchange::Transfer transfer;
  const cohort::ConstBytes body(bytes);
  exchange.send(transfer, to, 1, {}, {&body, 1});
}

void receive(cohort::Exchange& exchange, int from, Bytes& bytes) {
  for (;;) {
    const auto seen = exchange.events();
    if (exchange.peek(from, 1)) break;
    exchange.wait(seen, std::nullopt);
  }
  cohort::Exchange::Transfer transfer;
  const cohort::MutableBytes body(bytes);
  exchange.receive(transfer, from, 1, {&body, 1});
}

/// Seconds for a round: all send so many bytes to the chief, which answers when it has them all.
double round_of(int workers, std::size_t size, int rounds) {
  double seconds = 0;
  cohort::run_workers(workers, [&](const cohort::Worker& worker) {
    cohort::Exchange& exchange = *worker.exchange();
    Bytes bytes(size);
    const auto round = [&] {
      if (!worker.is_chief()) {
        send(exchange, 0, bytes);
        return receive(exchange, 0, bytes);
      }
      for (int other = 1; other < workers; ++other) receive(exchange, other, bytes);
      for (int other = 1; other < workers; ++other) send(exchange, other, bytes);
    };
    for (int i = 0; i < rounds / 10; ++i) round();
    const double begin = bench::seconds_now();
    for (int i = 0; i < rounds; ++i) round();
    if (worker.is_chief()) seconds = (bench::seconds_now() - begin) / rounds;
  });
  return seconds;
}

double median_round(int workers, std::size_t size, int rounds) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) times.push_back(round_of(workers, size, rounds));
  return bench::median(times);
}

}  // namespace

int main() {
  bench::Report report;
  report.add("exchange/message", median_round(2, 1024, 20'000) / 2 / kMicrosecond, "us",
             "half of a 1 KiB ping-pong of two workers");
  const double large = median_round(2, std::size_t{20} << 20, 20) / 2;
  report.add("exchange/large_message", (20 << 20) / large / 1e9, "GB/s",
             "20 MiB there and back, in one direction at a time");
  const double four = median_round(4, 1024, 5000), sixteen = median_round(16, 1024, 2000);
  report.add("exchange/round_of_4", four / kMicrosecond, "us", "1 KiB from all to one and back");
  report.add("exchange/round_of_16", sixteen / kMicrosecond, "us",
             "1 KiB from all to one and back");
}
