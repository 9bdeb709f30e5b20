#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

/// One line that grows while an epoch runs: `epoch 1/5  [=====>    ] 60%  loss 0.512  9800/s`.
/// Not on a terminal, only the finished line is printed.
class ProgressBar {
 public:
  ProgressBar(std::string title, long total) : title_(std::move(title)), total_(total) {}

  void show(long done, const std::string& text) {
    const bool last = done >= total_;
    if (!last && (!terminal_ || Clock::now() - shown_ < std::chrono::milliseconds(100))) return;
    shown_ = Clock::now();
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(kWidth * done / total_);
    std::string bar(filled, '=');
    if (!last) bar += '>';
    bar.resize(kWidth, ' ');
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::printf("%s%s  [%s] %3ld%%  %s  %.0f samples/s%s", terminal_ ? "\r" : "", title_.c_str(),
                bar.c_str(), 100 * done / total_, text.c_str(), static_cast<double>(done) / seconds,
                last ? "\n" : "");
    std::fflush(stdout);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  long total_;
  bool terminal_ = isatty(STDOUT_FILENO) != 0;
  Clock::time_point start_ = Clock::now(), shown_{};
};
