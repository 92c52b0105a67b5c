#pragma once

// From the tables of a scenario to what they stand for.

#include <toml++/toml.h>

#include <string>

#include "scenario/reader.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

// What is wrong is told to the findings; the setup is then not to be used.
Setup build_setup(const toml::table& root, const std::string& folder, Findings& findings);

// Its parts, one a file.
fabric::Topology build_topology(TableReader table, const std::string& folder);
// Its flows, for a topology and a seed that are there.
void build_traffic(TableReader table, const std::string& folder, Setup& setup);
// [fabric], [host] and [congestion]; `topology` for what depends on link rates and delays.
void build_network(TableReader fabric, TableReader host, TableReader congestion,
                   const std::string& folder, Setup& setup);

// What a kernel's stack costs: [kernel] of a host's profile, or [host.kernel].
void read_kernel(TableReader& table, device::HostStackSettings& stack);

// host.transport and [host.tcp]; what else they need of the fabric, when that is there.
void read_transport(TableReader& host, Setup& setup);
void check_transport(TableReader& host, Setup& setup);

// The part of [host] about losses, for a fabric that is there.
void read_recovery(TableReader& host, Setup& setup);

// "0-3, 8": numbers of hosts, and ranges of them; empty where the key is not there or wrong.
std::vector<std::uint32_t> read_hosts(TableReader& table, std::string_view key,
                                      std::uint32_t hosts);

// InfiniBand's congestion control: [fabric.congestion], and the keys of [congestion] that are its
// own.
void read_marking(TableReader table, Setup& setup);
void read_infiniband_control(TableReader& table, Setup& setup);

// [host.srd].
void read_srd(TableReader table, Setup& setup);

// The list [[partition]], for a fabric that is there; and the fabric's key about it.
void build_partitions(TableReader& root, Setup& setup);
void read_enforcement(TableReader& fabric, Setup& setup);

// The list [[fault]] and [recovery], for a fabric that is there.
void build_faults(TableReader& root, Setup& setup);

// Of the hosts' links: the first host's. Topologies from a table may begin with any link.
std::int64_t host_bits_per_second(const fabric::Topology& topology);

// The least headroom that a port needs so that nothing is lost after it has asked its neighbour to
// stop (IEEE 802.1Qbb annex N, in this simulator's terms): what arrives while the request waits for
// a frame before it and travels, while the neighbour finishes a frame, and what was on its way; and
// the frame that made it ask.
std::uint32_t headroom_needed(const fabric::Topology& topology,
                              const sim::NetworkSettings& settings);

}  // namespace tulle::scenario
