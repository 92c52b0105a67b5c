#include "management/datagram_service.h"

#include <algorithm>

namespace tulle::management {
namespace {

// IBTA 16.5.1: behind the header of a reliable transfer, a vendor's datagram names the vendor.
constexpr std::size_t oui_offset = 37;

// Subnet administration answers with the method's response bit; TrapRepress answers a trap although
// it lacks the bit (IBTA 13.4.5).
bool is_answer(const wire::MadHeader& header) {
  return (header.method & response_bit) != 0 || header.method == method_trap_repress;
}

std::uint32_t oui_of(Request mad) {
  std::uint32_t oui = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    oui = oui << 8 | std::to_integer<std::uint32_t>(mad[oui_offset + i]);
  }
  return oui;
}

void set_upper_transaction(Packet& packet, std::uint32_t key) {
  wire::MadHeader header = header_of(packet.mad);
  header.transaction_id =
      std::uint64_t{key} << 32 | (header.transaction_id & std::uint64_t{0xFFFF'FFFF});
  std::memcpy(packet.mad.data(), &header, sizeof header);
}

bool is_same_class(const Registration& a, const Registration& b) {
  return a.management_class == b.management_class && a.class_version == b.class_version &&
         a.oui == b.oui;
}

}  // namespace

DatagramService::Registered DatagramService::add(ClientId client,
                                                 const Registration& registration) {
  std::bitset<agents_of_client_max> used;
  for (const auto& [key, agent] : agents_) {
    if (agent.client == client) used.set(agent.number);
    const bool is_taken = is_same_class(agent.registration, registration) &&
                          (agent.registration.methods & registration.methods).any();
    if (is_taken) return {Refusal::taken, 0};
  }
  if (used.all()) return {Refusal::no_room, 0};
  std::uint32_t number = 0;
  while (used[number]) ++number;
  while (next_key_ == 0 || agents_.contains(next_key_)) ++next_key_;
  agents_.emplace(next_key_++, Agent{client, number, registration});
  return {Refusal::none, number};
}

std::optional<std::uint32_t> DatagramService::key_of(ClientId client, std::uint32_t number) const {
  for (const auto& [key, agent] : agents_) {
    if (agent.client == client && agent.number == number) return key;
  }
  return std::nullopt;
}

void DatagramService::forget(std::uint32_t key) {
  std::erase_if(waiting_, [key](const Waiting& each) { return each.agent_key == key; });
  agents_.erase(key);
}

DatagramService::Refusal DatagramService::remove(ClientId client, std::uint32_t agent) {
  const auto key = key_of(client, agent);
  if (!key) return Refusal::unknown_agent;
  forget(*key);
  return Refusal::none;
}

void DatagramService::remove_client(ClientId client) {
  for (std::uint32_t number = 0; number < agents_of_client_max; ++number) {
    static_cast<void>(remove(client, number));
  }
}

std::size_t DatagramService::waiting_of(ClientId client) const {
  return static_cast<std::size_t>(std::count_if(
      waiting_.begin(), waiting_.end(),
      [&](const Waiting& each) { return agents_.at(each.agent_key).client == client; }));
}

DatagramService::Refusal DatagramService::send(Time now, ClientId client, Question& question) {
  const auto key = key_of(client, question.agent);
  if (!key) return Refusal::unknown_agent;
  if (is_answer(header_of(question.packet.mad))) return Refusal::none;
  set_upper_transaction(question.packet, *key);
  if (question.timeout == Time::zero()) return Refusal::none;
  if (waiting_of(client) >= questions_of_client_max) return Refusal::no_room;
  waiting_.push_back(
      {*key, question.packet, question.timeout, now + question.timeout, question.retries});
  return Refusal::none;
}

std::optional<DatagramService::Delivery> DatagramService::receive(const Packet& packet) {
  const wire::MadHeader header = header_of(packet.mad);
  if (is_answer(header)) {
    const std::uint64_t transaction = header.transaction_id;
    const auto question = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
      const wire::MadHeader asked = header_of(each.packet.mad);
      return asked.transaction_id == transaction &&
             asked.management_class == header.management_class;
    });
    if (question == waiting_.end()) return std::nullopt;
    const Agent& agent = agents_.at(question->agent_key);
    waiting_.erase(question);
    return Delivery{agent.client, agent.number, false, packet};
  }
  const std::uint32_t oui = has_oui(header.management_class) ? oui_of(packet.mad) : 0;
  for (const auto& [key, agent] : agents_) {
    const Registration& wants = agent.registration;
    if (wants.management_class == header.management_class &&
        wants.class_version == header.class_version && wants.oui == oui &&
        wants.methods[header.method & 0x7F]) {
      return Delivery{agent.client, agent.number, false, packet};
    }
  }
  return std::nullopt;
}

Time DatagramService::next_timeout() const {
  Time next = Time::never();
  for (const Waiting& each : waiting_) next = std::min(next, each.due);
  return next;
}

std::optional<DatagramService::Expired> DatagramService::expire(Time now) {
  const auto due = std::find_if(waiting_.begin(), waiting_.end(),
                                [now](const Waiting& each) { return each.due <= now; });
  if (due == waiting_.end()) return std::nullopt;
  const Agent& agent = agents_.at(due->agent_key);
  Expired expired{due->retries > 0, {agent.client, agent.number, true, due->packet}};
  if (expired.is_retry) {
    --due->retries;
    due->due = now + due->timeout;
  } else {
    waiting_.erase(due);
  }
  return expired;
}

bool DatagramService::serves(std::uint8_t management_class, std::uint8_t method) const {
  return std::any_of(agents_.begin(), agents_.end(), [&](const auto& entry) {
    const Registration& registration = entry.second.registration;
    return registration.management_class == management_class && registration.methods[method & 0x7F];
  });
}

}  // namespace tulle::management
