#include "cohort/variables/variable_options.h"

namespace cohort {

std::ostream& operator<<(std::ostream& out, Synchronization synchronization) {
  switch (synchronization) {
    case Synchronization::AUTO:
      return out << "AUTO";
    case Synchronization::NONE:
      return out << "NONE";
    case Synchronization::ON_WRITE:
      return out << "ON_WRITE";
    case Synchronization::ON_READ:
      return out << "ON_READ";
  }
  return out << static_cast<int>(synchronization);
}

std::ostream& operator<<(std::ostream& out, Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::NONE:
      return out << "NONE";
    case Aggregation::SUM:
      return out << "SUM";
    case Aggregation::MEAN:
      return out << "MEAN";
    case Aggregation::ONLY_FIRST_REPLICA:
      return out << "ONLY_FIRST_REPLICA";
  }
  return out << static_cast<int>(aggregation);
}

}  // namespace cohort
