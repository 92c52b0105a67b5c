#include "management/datagram_service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rdma/wire/rmpp.h"

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

bool awaits_answer(const DatagramService::Question& question) {
  return !is_answer(header_of(question.packet.mad)) && question.timeout > Time::zero();
}

// Returns what is left of a limit.
std::size_t left_of(std::size_t limit, std::size_t used) { return limit - std::min(limit, used); }

}  // namespace

DatagramService::Registered DatagramService::add(ClientId client,
                                                 const Registration& registration) {
  const ClassKey of_class = class_of(registration);
  const auto [first, last] = listeners_.equal_range(of_class);
  for (auto each = first; each != last; ++each) {
    const auto& taken = agents_.at(each->second).registration.methods;
    if ((taken & registration.methods).any()) return {Refusal::taken, 0};
  }
  std::uint32_t number = 0;
  while (number < agents_of_client_max && key_of(client, number)) ++number;
  if (number == agents_of_client_max) return {Refusal::no_room, 0};
  while (next_key_ == 0 || agents_.contains(next_key_)) ++next_key_;
  const std::uint32_t key = next_key_++;
  agents_.emplace(key, Agent{client, number, registration});
  keys_.emplace(std::pair(client, number), key);
  if (registration.methods.any()) listeners_.emplace(of_class, key);
  return {Refusal::none, number};
}

std::optional<std::uint32_t> DatagramService::key_of(ClientId client, std::uint32_t number) const {
  const auto found = keys_.find({client, number});
  return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

void DatagramService::forget(std::uint32_t key) {
  waiting_.erase_agent(key);
  const Agent& agent = agents_.at(key);
  keys_.erase({agent.client, agent.number});
  const auto [first, last] = listeners_.equal_range(class_of(agent.registration));
  const auto found =
      std::find_if(first, last, [&](const auto& each) { return each.second == key; });
  if (found != last) listeners_.erase(found);
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
  programs_.erase(client);
}

ProgramId DatagramService::program_of(ClientId client) const {
  constexpr ProgramId without_program = ProgramId{1} << 32;
  const auto found = programs_.find(client);
  return found == programs_.end() ? without_program | client : found->second;
}

// --- sending ---

std::size_t DatagramService::bytes_to_send() const {
  std::size_t bytes = 0;
  for (const Sending& each : senders_) bytes += each.sender.bytes();
  return bytes;
}

bool DatagramService::has_room_to_send(ClientId client, std::size_t bytes) const {
  std::size_t of_client = 0, bytes_of_client = bytes;
  for (const Sending& each : senders_) {
    if (each.client != client) continue;
    ++of_client;
    bytes_of_client += each.sender.bytes();
  }
  return senders_.size() < transactions_max && of_client < transactions_of_client_max &&
         bytes_of_client <= bytes_of_client_max &&
         bytes_received_ + bytes_to_send() + bytes <= transaction_bytes_max;
}

bool DatagramService::is_transaction(std::uint32_t key, const Packet& packet) const {
  return agents_.at(key).registration.has_transactions && asks_for_rmpp(packet.mad);
}

bool DatagramService::has_room(ClientId client, const Question& question, bool is_long,
                               std::size_t bytes) const {
  return (!awaits_answer(question) || waiting_.has_room(program_of(client))) &&
         (!is_long || has_room_to_send(client, bytes));
}

DatagramService::Refusal DatagramService::check_long(ClientId client, const Question& question,
                                                     std::size_t bytes) const {
  const auto key = key_of(client, question.agent);
  if (!key) return Refusal::unknown_agent;
  const bool is_long = is_transaction(*key, question.packet);
  if (!is_long && bytes > question.packet.mad.size()) return Refusal::too_long;
  return has_room(client, question, is_long, bytes) ? Refusal::none : Refusal::no_room;
}

DatagramService::Refusal DatagramService::send(Time now, ClientId client, Question question) {
  const auto key = key_of(client, question.agent);
  if (!key) return Refusal::unknown_agent;
  Packet& packet = question.packet;
  const bool is_long = is_transaction(*key, packet);
  if (!has_room(client, question, is_long, question.whole.size())) return Refusal::no_room;
  if (!is_answer(header_of(packet.mad))) set_upper_transaction(packet, *key);
  if (awaits_answer(question)) {
    const ProgramId program = program_of(client);
    waiting_.add(now, {*key, program, packet, question.timeout, question.retries, {}});
  }
  if (!is_long) {
    outgoing_.push_back(packet);
    return Refusal::none;
  }
  auto& whole = question.whole;
  whole.resize(std::max(whole.size(), sizeof(wire::MadHeader)));
  std::copy_n(packet.mad.begin(), sizeof(wire::MadHeader), whole.begin());
  senders_.push_back({client, RmppSender(now, packet, std::move(whole))});
  transactions_due_ = std::min(transactions_due_, senders_.back().sender.deadline());
  return Refusal::none;
}

std::optional<Packet> DatagramService::take_packet() {
  for (Sending& each : senders_) {
    if (auto packet = each.sender.take_packet()) return packet;
  }
  if (outgoing_.empty()) return std::nullopt;
  const Packet packet = outgoing_.front();
  outgoing_.pop_front();
  return packet;
}

// --- receiving ---

// Returns the key of the agent that asked the question, or that has registered for it.
std::optional<std::uint32_t> DatagramService::agent_for(const Packet& packet) const {
  const wire::MadHeader header = header_of(packet.mad);
  if (is_answer(header)) {
    const auto question = waiting_.find(packet);
    if (!question) return std::nullopt;
    return waiting_.at(*question).agent_key;
  }
  const std::uint32_t oui = wire::has_oui(header.management_class) ? oui_of(packet.mad) : 0;
  const auto [first, last] =
      listeners_.equal_range({header.management_class, header.class_version, oui});
  for (auto each = first; each != last; ++each) {
    if (agents_.at(each->second).registration.methods[header.method & 0x7F]) return each->second;
  }
  return std::nullopt;
}

std::optional<DatagramService::Delivery> DatagramService::deliver(const Packet& packet,
                                                                  std::vector<std::byte> whole) {
  const auto key = agent_for(packet);
  if (!key) return std::nullopt;
  if (is_answer(header_of(packet.mad))) waiting_.erase(*waiting_.find(packet));
  const Agent& agent = agents_.at(*key);
  return Delivery{agent.client, agent.number, false, packet, std::move(whole)};
}

std::optional<DatagramService::Delivery> DatagramService::receive(Time now, const Packet& packet) {
  if (!is_rmpp(packet.mad)) return deliver(packet, {});
  for (auto each = senders_.begin(); each != senders_.end(); ++each) {
    if (!each->sender.owns(packet)) continue;
    each->sender.receive(now, packet);
    if (each->sender.is_over()) senders_.erase(each);
    return std::nullopt;
  }
  const auto key = agent_for(packet);
  const bool is_agents_own = key && !agents_.at(*key).registration.has_transactions;
  return is_agents_own ? deliver(packet, {}) : receive_segment(now, packet);
}

std::optional<DatagramService::Delivery> DatagramService::receive_segment(Time now,
                                                                          const Packet& packet) {
  auto found = receivers_.find(transaction_of(packet));
  if (found == receivers_.end()) found = begin_transaction(now, packet);
  if (found == receivers_.end() || !found->second.receiver.owns(packet)) return std::nullopt;
  Receiving& receiving = found->second;
  const auto question = receiving.is_answer ? waiting_.find(packet) : std::nullopt;
  const bool is_unwanted = receiving.is_answer && !receiving.is_finished && !question;
  if (is_unwanted) {
    end_transaction(found);
    return std::nullopt;
  }
  RmppReceiver& receiver = receiving.receiver;
  const std::size_t before = receiver.bytes();
  if (const auto back = receiver.receive(now, packet, room_of(receiving))) {
    outgoing_.push_back(*back);
  }
  transactions_due_ = std::min(transactions_due_, receiver.deadline());
  count(receiving, before);
  // The question has its answer, of which the rest is under way.
  if (question && receiver.bytes() != before) waiting_.postpone(*question, receiver.deadline());
  std::vector<std::byte> whole;
  if (!receiver.take_whole(whole)) return std::nullopt;
  count(receiving, whole.size());
  const Packet first = receiver.first();
  finish(found);
  return deliver(first, std::move(whole));
}

DatagramService::Receivings::iterator DatagramService::begin_transaction(Time now,
                                                                         const Packet& first) {
  if (!is_first_segment(first.mad) || !agent_for(first)) return receivers_.end();
  const bool answers = is_answer(header_of(first.mad));
  const std::uint16_t source = first.source.value;
  if (answers) {
    const std::size_t of_answers = receivers_.size() - others_.transactions - finished_.size();
    if (of_answers >= WaitingQuestions::questions_max) return receivers_.end();
  } else {
    const auto known = of_source_.find(source);
    const std::size_t of_source = known == of_source_.end() ? 0 : known->second.transactions;
    const bool has_room =
        others_.transactions < transactions_max && of_source < transactions_of_source_max;
    if (!has_room) return receivers_.end();
    ++others_.transactions;
    ++of_source_[source].transactions;
  }
  return receivers_.emplace(transaction_of(first), Receiving{RmppReceiver(now, first), answers})
      .first;
}

// Returns how long a datagram may be of which some has come.
std::size_t DatagramService::room_of(const Receiving& receiving) const {
  const std::size_t own = receiving.receiver.bytes();
  const std::size_t room = left_of(transaction_bytes_max, bytes_received_ - own + bytes_to_send());
  if (receiving.is_answer || receiving.is_finished) return room;
  const std::size_t of_source = of_source_.at(receiving.receiver.first().source.value).bytes;
  return std::min({room, left_of(bytes_of_others_max, others_.bytes - own),
                   left_of(bytes_of_source_max, of_source - own)});
}

// Counts the bytes of a transaction, which had other ones before.
void DatagramService::count(const Receiving& receiving, std::size_t bytes_before) {
  if (receiving.is_finished) return;
  const std::size_t more = receiving.receiver.bytes() - bytes_before;  // may be less than none
  bytes_received_ += more;
  if (receiving.is_answer) return;
  others_.bytes += more;
  of_source_.at(receiving.receiver.first().source.value).bytes += more;
}

// Gives back the place of a transaction whose bytes are not counted any more.
void DatagramService::give_back_place(Receiving& receiving) {
  if (receiving.is_finished) return;
  receiving.is_finished = true;
  if (receiving.is_answer) return;
  --others_.transactions;
  const auto of_source = of_source_.find(receiving.receiver.first().source.value);
  if (--of_source->second.transactions == 0) of_source_.erase(of_source);
}

void DatagramService::finish(Receivings::iterator receiving) {
  give_back_place(receiving->second);
  finished_.push_back(receiving->first);
  if (finished_.size() <= finished_max) return;
  receivers_.erase(finished_.front());
  finished_.pop_front();
}

// Forgets a transaction that is not finished.
DatagramService::Receivings::iterator DatagramService::end_transaction(
    Receivings::iterator receiving) {
  const std::size_t bytes = receiving->second.receiver.bytes();
  receiving->second.receiver.drop_bytes();
  count(receiving->second, bytes);
  give_back_place(receiving->second);
  return receivers_.erase(receiving);
}

// --- time ---

Time DatagramService::next_timeout() const {
  return std::min(waiting_.next_timeout(), transactions_due_);
}

void DatagramService::expire_transactions(Time now) {
  transactions_due_ = Time::never();
  for (Sending& each : senders_) each.sender.expire(now);
  std::erase_if(senders_, [](const Sending& each) { return each.sender.is_over(); });
  for (const Sending& each : senders_) {
    transactions_due_ = std::min(transactions_due_, each.sender.deadline());
  }
  // Those that finished first are over first.
  while (!finished_.empty() && receivers_.at(finished_.front()).receiver.is_over(now)) {
    receivers_.erase(finished_.front());
    finished_.pop_front();
  }
  for (auto each = receivers_.begin(); each != receivers_.end();) {
    const bool ends = !each->second.is_finished && each->second.receiver.is_over(now);
    if (!ends) transactions_due_ = std::min(transactions_due_, each->second.receiver.deadline());
    each = ends ? end_transaction(each) : std::next(each);
  }
}

std::optional<DatagramService::Delivery> DatagramService::expire(Time now) {
  if (now >= transactions_due_) expire_transactions(now);
  while (const auto due = waiting_.take_due(now)) {
    const auto& question = due->question;
    if (due->is_over) {
      const Agent& agent = agents_.at(question.agent_key);
      return Delivery{agent.client, agent.number, true, question.packet, {}};
    }
    outgoing_.push_back(question.packet);
  }
  return std::nullopt;
}

void DatagramService::rebase(Time by) {
  waiting_.rebase(by);
  for (Sending& each : senders_) each.sender.rebase(by);
  for (auto& [key, receiving] : receivers_) receiving.receiver.rebase(by);
  tulle::rebase(by, transactions_due_);
}

}  // namespace tulle::management
