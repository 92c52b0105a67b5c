#pragma once

// Reads messages of the kernel's routing tables (rtnetlink). A list of messages, or of attributes,
// ends where a length does not fit.

#include <linux/rtnetlink.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace tulle {

// Calls take(const nlmsghdr& header, std::span<const std::byte> body) for each message.
template <typename Take>
void for_each_message(std::span<const std::byte> messages, Take take) {
  while (messages.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, messages.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > messages.size()) return;
    take(header, messages.subspan(sizeof header, header.nlmsg_len - sizeof header));
    messages =
        messages.subspan(std::min(messages.size(), std::size_t{NLMSG_ALIGN(header.nlmsg_len)}));
  }
}

// Calls take(unsigned type, std::span<const std::byte> value) for each attribute.
template <typename Take>
void for_each_attribute(std::span<const std::byte> attributes, Take take) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, attributes.data(), sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > attributes.size()) return;
    take(attribute.rta_type,
         attributes.subspan(sizeof attribute, attribute.rta_len - sizeof attribute));
    attributes =
        attributes.subspan(std::min(attributes.size(), std::size_t{RTA_ALIGN(attribute.rta_len)}));
  }
}

}  // namespace tulle
