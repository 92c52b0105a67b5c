#include "study/report/samples.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

TEST(Samples, Table) {
  Samples samples;
  samples.interval = Time::nanoseconds(800);
  samples.ports = {{"leaf 0", "host 1", 3, false}, {"host 1", "leaf 0", 0, true}};
  samples.samples = {{10'000, 77}, {1, 0}, {0, 0}, {0, 0}};
  EXPECT_EQ(samples_csv(samples),
            "time_ns,from,port,to,gbps,queue_bytes\n"
            "800,leaf 0,3,host 1,100.000,77\n"
            "800,host 1,0,leaf 0,0.010,\n"
            "1600,leaf 0,3,host 1,0.000,0\n"
            "1600,host 1,0,leaf 0,0.000,\n");
}

}  // namespace
}  // namespace tulle::report
