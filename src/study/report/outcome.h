#pragma once

// The outcome of a run, as data: flows, figures, tables and samples. Nothing here depends on the
// simulator.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "study/report/figure.h"
#include "study/report/samples.h"
#include "study/report/timeline.h"

namespace tulle::report {

// The outcome of a message, whatever the number of queue pairs that share it.
struct Flow {
  std::uint32_t source = 0;  // host numbers
  std::uint32_t destination = 0;
  std::uint64_t bytes = 0;
  Time start = Time::never();    // never: it did not begin
  Time end = Time::never();      // time of the acknowledgement; never: there was none by the end
  Time arrived = Time::never();  // time when the receiver was told; never: it was not
  double slowdown = 0;           // ratio of its time to that in an empty network
  bool failed = false;

  bool is_done() const { return !end.is_never(); }
  bool has_arrived() const { return !arrived.is_never(); }
  Time taken() const { return end - start; }
  Time latency() const { return arrived - start; }
};

struct Quantiles {
  double min = 0, median = 0, p99 = 0, max = 0;
};
// Computes quantiles by the nearest rank. All are 0 if there are no values.
Quantiles quantiles(std::vector<double> values);

// The way in which a collective went, by the names of the keys of a scenario.
struct Method {
  std::string_view algorithm;
  std::string_view protocol;
};

struct Tally {
  std::uint64_t flows = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t arrived = 0;
};

// The flows of one kind, if traffic has names.
struct Kind {
  std::string name;
  Figures figures;
  std::optional<Method> method{};  // present if the kind is a job that is one collective
  std::optional<Tally> tally{};    // present if the outcome's flows are not
};

// A table with one row for each part of the network, such as a direction of a link. Each row has
// the names of its part, and then a value of each figure.
struct Sheet {
  struct Row {
    std::vector<std::string> names;
    std::vector<Value> values;
  };
  std::vector<std::string_view> names;  // the headings over the names
  std::vector<const Figure*> figures;
  std::vector<Row> rows;
};
// Returns the value of the row's figure of that key, or null if the sheet has none.
const Value* find(const Sheet& sheet, const Sheet::Row& row, std::string_view key);

struct Outcome {
  std::string variant;
  std::vector<Flow> flows;
  std::vector<Kind> kinds;             // empty if traffic has no names
  std::vector<std::uint32_t> kind_of;  // by flow; empty if traffic has no names
  Figures figures;
  std::optional<Method> method;  // present if the run is one collective
  std::optional<Tally> tally;    // present if the flows are not: an outcome that was stored
  Figures simulator;             // the simulator's own work
  Sheet links;                   // one row for each direction of each link
  std::optional<Sheet> hosts;    // the work of the hosts' kernels, if they have such a stack
  Samples samples;               // empty unless the scenario asks for samples
  Timeline timeline;             // empty unless a page is to show it
  Spans spans;                   // likewise, and of jobs alone
};

// Returns the figure that summary.json has by this name, such as "dropped", "fct_us.p99" or
// "traffic.KIND.failed", or null.
const Measured* find(const Outcome& outcome, std::string_view name);

// Counts the outcome's flows, or those of one of its kinds.
Tally tally(const Outcome& outcome, std::optional<std::size_t> kind = {});

// Returns, for example, "3 of 64 flows failed, 2 are not done", or "" if all flows finished.
std::string unfinished(const Outcome& outcome);

// The outcomes of the variants of a scenario, in their order.
struct Results {
  std::string name;
  std::string title;
  std::string description;
  std::vector<Outcome> outcomes;
};

}  // namespace tulle::report
