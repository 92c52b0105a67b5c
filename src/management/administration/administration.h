#pragma once

// Subnet administration (IBTA 15): the side of a subnet manager that answers programs. It tells of
// nodes, links and paths as the manager's last sweep left them, keeps services, groups and
// subscriptions, and passes notices on. It is a state machine without input or output, at QP1 of
// the manager's port.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "management/administration/groups.h"
#include "management/administration/question.h"
#include "management/administration/records.h"
#include "management/administration/rows.h"
#include "management/administration/subscriptions.h"
#include "management/packet.h"
#include "management/rmpp.h"
#include "management/subnet/manager.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

class Administration {
 public:
  // Tables under way, and the bytes of all of these and of what searches have found. A question
  // beyond is refused. A port's share holds all paths between 700 nodes.
  static constexpr std::size_t tables_max = 64;
  static constexpr std::size_t tables_of_port_max = 16;
  static constexpr std::size_t table_bytes_max = 128 << 20;
  static constexpr std::size_t ports_share = 4;  // a port has a quarter of the bytes
  static constexpr std::size_t outgoing_max = 1'024;
  // All questions together follow so many paths and look at so many records, each in a quarter of a
  // millisecond, before something else has its turn. Those that name one path or record cost
  // nothing. The next turn is at a later time, in the next pass of the fabric's process.
  static constexpr std::size_t paths_in_a_turn = 512;
  static constexpr std::size_t records_in_a_turn = 2'048;
  // Searches that wait, of one port and of all.
  static constexpr std::size_t searches_of_port_max = 4;
  static constexpr std::size_t searches_max = 64;
  // A question with this SM_Key learns the members of groups. It changes nothing of other ports:
  // that takes the manager's own key, if it is a secret.
  static constexpr std::uint64_t trusted_key = Records::trusted_key;

  Administration() : Administration(table_bytes_max) {}
  explicit Administration(std::size_t table_bytes) : table_bytes_(table_bytes) {}

  // Looks at what the manager has done since: its graph, and notices. Must be called before a
  // datagram is taken, and after the manager has worked. The manager must stay where it is.
  void follow(subnet::Manager& manager);

  // Takes a datagram for QP1 of the manager's port.
  void receive(Time now, const Packet& packet);
  std::optional<Packet> take_packet(Time now);
  Time next_timeout() const;
  void expire(Time now);
  void rebase(Time by);

  const Groups& groups() const { return records_.groups(); }
  // Returns the reports that had no room, because their subscribers did not answer earlier ones.
  std::uint64_t dropped_reports() const { return subscriptions_.dropped_reports(); }

 private:
  // A search that takes several turns.
  struct Search {
    Packet packet;
    wire::MadHeader header;
    wire::AdministrationHeader administration;
    Records::Cursor cursor;
    Rows rows;
  };

  const View& view() const { return records_.view(); }
  void forget_subnet();
  void report_changes();
  void report(std::uint16_t trap, const wire::GidBytes& about);
  void report_from_node(const wire::Notice& notice);

  void answer(Time now, const Question& question);
  void answer_class_port_info(const Question& question);
  void answer_query(Time now, const Question& question);
  bool is_same_port(Lid a, Lid b) const;
  std::uint64_t owner_of(const Question& question) const;
  bool has_secret_key(const Question& question) const;
  bool is_of_asker(const Question& question, const wire::GidBytes& gid) const;
  bool begin_turn(Time now);
  void search_on(Time now);
  void change_service(Time now, const Question& question);
  void change_subscription(const Question& question);
  void change_member(const Question& question);

  // What tables and searches have taken, in all and of one port.
  struct Taken {
    std::size_t tables = 0;
    std::size_t tables_of_port = 0;
    std::size_t bytes = 0;
    std::size_t bytes_of_port = 0;
    bool is_sending = false;  // the answer to this question
  };
  Taken taken_by(const Question& question) const;
  bool refuses_table(const Question& question, const Taken& taken);
  std::size_t room_beside(const Taken& taken) const;
  Rows rows_for(const Question& question, const Taken& taken) const;
  void send_rows(Time now, const Question& question, const Rows& rows);
  void send_status(const Question& question, std::uint16_t status);
  template <typename Record>
  void send_record(const Question& question, const Record& record);
  Packet begin(const Question& question, std::uint16_t status) const;
  void send(const Packet& packet) {
    if (outgoing_.size() < outgoing_max) outgoing_.push_back(packet);
  }

  std::size_t table_bytes_;
  bool is_up_ = false;
  std::uint64_t sweeps_ = 0;         // of the graph that is shown
  std::uint64_t group_changes_ = 0;  // that the manager has been told of
  std::uint64_t secret_key_ = 0;     // of the manager; 0: none
  Records records_;
  std::map<std::uint64_t, wire::GidBytes> ports_;  // by GUID: the GIDs that are in service
  Subscriptions subscriptions_;
  std::deque<Packet> outgoing_;
  std::deque<RmppSender> tables_;
  std::deque<Search> searches_;  // the first one is under way
  Time turn_began_ = Time::zero();
  Budget left_{paths_in_a_turn, records_in_a_turn};
};

}  // namespace tulle::management::administration
