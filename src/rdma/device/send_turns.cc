#include "rdma/device/send_turns.h"

namespace tulle::device {

using transport::QueuePair;

void SendTurns::remove(QueuePair& qp) {
  if (!qp.scheduled) return;
  List& list = lists_[place_of(qp.scheduled_list)];
  if (list.first == &qp) packets_in_turn_ = 0;
  QueuePair* previous = nullptr;
  for (QueuePair* at = list.first; at != &qp; at = at->next_scheduled) previous = at;
  (previous != nullptr ? previous->next_scheduled : list.first) = qp.next_scheduled;
  if (list.last == &qp) list.last = previous;
  if (list.first == nullptr) filled_ &= ~(1u << qp.scheduled_list);
  qp.scheduled = false;
  qp.next_scheduled = nullptr;
}

QueuePair* SendTurns::take() {
  if (filled_ == 0) return nullptr;
  QueuePair* qp = lists_[place_of(static_cast<std::uint32_t>(std::countr_zero(filled_)))].first;
  remove(*qp);
  return qp;
}

void SendTurns::add_notification(QueuePair& qp) {
  if (qp.notification_due) return;
  qp.notification_due = true;
  qp.next_notification = nullptr;
  (notifying_.last != nullptr ? notifying_.last->next_notification : notifying_.first) = &qp;
  notifying_.last = &qp;
}

void SendTurns::remove_notification(QueuePair& qp) {
  if (!qp.notification_due) return;
  QueuePair* previous = nullptr;
  for (QueuePair* at = notifying_.first; at != &qp; at = at->next_notification) previous = at;
  (previous != nullptr ? previous->next_notification : notifying_.first) = qp.next_notification;
  if (notifying_.last == &qp) notifying_.last = previous;
  qp.notification_due = false;
}

}  // namespace tulle::device
