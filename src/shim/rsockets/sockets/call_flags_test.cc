#include "shim/rsockets/sockets/call_flags.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tulle::rsockets {
namespace {

TEST(CallFlags, EachFlagThatIsReceivedWith) {
  for (const int flag : std::initializer_list<int>{0, MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT,
                                                   MSG_TRUNC, MSG_CMSG_CLOEXEC, MSG_NOSIGNAL,
                                                   MSG_MORE, MSG_EOR, MSG_WAITFORONE}) {
    EXPECT_EQ(check_receive_flags(flag), 0) << flag;
  }
  EXPECT_EQ(check_receive_flags(MSG_PEEK | MSG_OOB), EINVAL);
  EXPECT_EQ(check_receive_flags(MSG_ERRQUEUE | MSG_DONTWAIT), EAGAIN);
  EXPECT_EQ(check_receive_flags(MSG_ERRQUEUE | MSG_OOB), EAGAIN);
  EXPECT_EQ(check_receive_flags(MSG_PROXY), EOPNOTSUPP);
  EXPECT_EQ(check_receive_flags(1 << 23), EOPNOTSUPP);
}

TEST(CallFlags, EachFlagThatIsSentWith) {
  for (const int flag : std::initializer_list<int>{0, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR,
                                                   MSG_WAITALL, MSG_CONFIRM, MSG_ZEROCOPY}) {
    EXPECT_EQ(check_send_flags(flag), 0) << flag;
  }
  for (const int flag : std::initializer_list<int>{MSG_OOB, MSG_PEEK, MSG_DONTROUTE, MSG_ERRQUEUE,
                                                   MSG_FASTOPEN, MSG_SYN}) {
    EXPECT_EQ(check_send_flags(flag | MSG_NOSIGNAL), EOPNOTSUPP) << flag;
  }
}

}  // namespace
}  // namespace tulle::rsockets
