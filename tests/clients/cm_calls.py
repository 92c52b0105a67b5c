"""Makes calls of librdmacm that newer releases have, for rdmacm_test.py. Runs over Tulle, as a unittest program of
its own."""

import ctypes
import errno
import select
import socket
import threading
import unittest

OURS = ctypes.CDLL("librdmacm.so.1", use_errno=True)

TCP = 0x0106
ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_REQUEST = 0, 2, 4
TIMEWAIT_EXIT, ADDRINFO_RESOLVED, ADDRINFO_ERROR, USER = 15, 16, 17, 18
NUMERIC_HOST, BY_SUBNET_ADMINISTRATOR, BY_NAME_SERVICE = 0x02, 0x10, 0x20


class Id(ctypes.Structure):
    pass


class Event(ctypes.Structure):
    _fields_ = [("id", ctypes.POINTER(Id)), ("listen_id", ctypes.c_void_p), ("event", ctypes.c_int),
                ("status", ctypes.c_int), ("argument", ctypes.c_uint64), ("rest", ctypes.c_byte * 128)]


class Information(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_int), ("family", ctypes.c_int), ("qp_type", ctypes.c_int),
                ("port_space", ctypes.c_int), ("src_len", ctypes.c_uint32), ("dst_len", ctypes.c_uint32),
                ("src_addr", ctypes.c_void_p), ("dst_addr", ctypes.c_void_p), ("src_name", ctypes.c_void_p),
                ("dst_name", ctypes.c_void_p), ("route_len", ctypes.c_size_t), ("route", ctypes.c_void_p),
                ("connect_len", ctypes.c_size_t), ("connect", ctypes.c_void_p), ("next", ctypes.c_void_p)]


class Channel(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int)]


OURS.rdma_create_event_channel.restype = ctypes.POINTER(Channel)
OURS.rdma_destroy_event_channel.restype = OURS.rdma_freeaddrinfo.restype = None
OURS.rdma_event_str.restype = ctypes.c_char_p


class CmTest(unittest.TestCase):
    def setUp(self):
        self.channel = OURS.rdma_create_event_channel()
        self.addCleanup(OURS.rdma_destroy_event_channel, self.channel)
        self.id = self.create(self.channel)

    def create(self, channel):
        created = ctypes.POINTER(Id)()
        self.assertEqual(0, OURS.rdma_create_id(channel, ctypes.byref(created), None, TCP))
        self.addCleanup(OURS.rdma_destroy_id, created)
        return created

    def refused(self, error, result):
        self.assertEqual(-1, result)
        self.assertEqual(error, ctypes.get_errno())

    def is_readable(self):
        return bool(select.select([self.channel.contents.fd], [], [], 0)[0])

    def take(self):
        event = ctypes.POINTER(Event)()
        self.assertEqual(0, OURS.rdma_get_cm_event(self.channel, ctypes.byref(event)))
        copy = (ctypes.addressof(event.contents.id.contents), event.contents.event, event.contents.status,
                event.contents.argument)
        self.assertEqual(0, OURS.rdma_ack_cm_event(event))
        return copy

    def own(self):
        return ctypes.addressof(self.id.contents)


class OwnEvents(CmTest):
    def test_come_by_the_channel(self):
        self.assertFalse(self.is_readable())
        argument = 0x0123456789ABCDEF
        self.assertEqual(0, OURS.rdma_write_cm_event(self.id, USER, -7, ctypes.c_uint64(argument)))
        self.assertTrue(self.is_readable())
        self.assertEqual((self.own(), USER, -7, argument), self.take())
        self.assertFalse(self.is_readable())

    def test_only_the_users_event_may_be_written(self):
        for event in (ADDR_RESOLVED, TIMEWAIT_EXIT, ADDRINFO_RESOLVED, 19):
            self.refused(errno.EINVAL, OURS.rdma_write_cm_event(self.id, event, 0, ctypes.c_uint64(0)))
        self.refused(errno.EINVAL, OURS.rdma_write_cm_event(None, USER, 0, ctypes.c_uint64(0)))

    def test_names(self):
        self.assertEqual(b"RDMA_CM_EVENT_ADDRINFO_RESOLVED", OURS.rdma_event_str(ADDRINFO_RESOLVED))
        self.assertEqual(b"RDMA_CM_EVENT_USER", OURS.rdma_event_str(USER))
        self.assertEqual(b"UNKNOWN EVENT", OURS.rdma_event_str(20))


class Resolving(CmTest):
    def resolve(self, node, flags=NUMERIC_HOST, of=None):
        hints = Information(flags=flags, port_space=TCP)
        return OURS.rdma_resolve_addrinfo(of or self.id, node, b"7471", ctypes.byref(hints))

    def query(self, of=None):
        found = ctypes.POINTER(Information)()
        return OURS.rdma_query_addrinfo(of or self.id, ctypes.byref(found)), found

    def test_what_is_found_is_told_of_and_taken_once(self):
        self.refused(errno.ENOENT, self.query()[0])
        for flags in (NUMERIC_HOST, NUMERIC_HOST | BY_NAME_SERVICE):
            self.assertEqual(0, self.resolve(b"127.0.0.1", flags))
            self.refused(errno.EBUSY, self.resolve(b"127.0.0.1"))
            self.assertEqual((self.own(), ADDRINFO_RESOLVED, 0), self.take()[:3])
            result, found = self.query()
            self.assertEqual(0, result)
            self.assertEqual((socket.AF_INET, TCP, 16),
                             (found.contents.family, found.contents.port_space, found.contents.dst_len))
            OURS.rdma_freeaddrinfo(found)
            self.refused(errno.ENOENT, self.query()[0])

    def test_a_name_that_nobody_has(self):
        self.assertEqual(0, self.resolve(b"no address"))
        self.assertEqual((self.own(), ADDRINFO_ERROR, -errno.ENOENT), self.take()[:3])
        self.refused(errno.ENOENT, self.query()[0])
        self.assertEqual(0, self.resolve(b"::1"), "the next may be asked for")
        self.assertEqual(ADDRINFO_RESOLVED, self.take()[1])

    def test_without_a_channel_the_call_waits(self):
        synchronous = self.create(None)
        self.assertEqual(0, self.resolve(b"127.0.0.1", of=synchronous))
        result, found = self.query(synchronous)
        self.assertEqual(0, result)
        OURS.rdma_freeaddrinfo(found)
        self.refused(errno.ENOENT, self.resolve(b"no address", of=synchronous))

    def test_refusals(self):
        self.refused(errno.ENOTSUP, self.resolve(None, BY_SUBNET_ADMINISTRATOR))
        self.refused(errno.EINVAL, OURS.rdma_resolve_addrinfo(None, b"::1", None, None))
        self.refused(errno.EINVAL, OURS.rdma_resolve_addrinfo(self.id, None, None, None))
        self.refused(errno.EINVAL, OURS.rdma_query_addrinfo(self.id, None))
        self.assertFalse(self.is_readable())


class Parameters(ctypes.Structure):
    _fields_ = [("private_data", ctypes.c_void_p), ("private_data_len", ctypes.c_uint8),
                ("responder_resources", ctypes.c_uint8), ("initiator_depth", ctypes.c_uint8),
                ("flow_control", ctypes.c_uint8), ("retry_count", ctypes.c_uint8),
                ("rnr_retry_count", ctypes.c_uint8), ("srq", ctypes.c_uint8), ("qp_num", ctypes.c_uint32)]


class Requests(CmTest):
    """Tests requests for connections that a server has not accepted. Their events are not for it (Linux,
    drivers/infiniband/core/ucma.c: ucma_event_handler)."""

    ADDRESS = (ctypes.c_byte * 16).from_buffer_copy(
        socket.AF_INET.to_bytes(2, "little") + (7476).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8))

    def setUp(self):
        super().setUp()
        self.server = self.channel
        self.assertEqual(0, OURS.rdma_bind_addr(self.id, self.ADDRESS))
        self.assertEqual(0, OURS.rdma_listen(self.id, 4))
        self.client = OURS.rdma_create_event_channel()
        self.addCleanup(OURS.rdma_destroy_event_channel, self.client)

    def connect(self):
        """Returns the ids of a client and of its request at the server."""
        client = ctypes.POINTER(Id)()
        self.assertEqual(0, OURS.rdma_create_id(self.client, ctypes.byref(client), None, TCP))
        self.channel = self.client
        self.assertEqual(0, OURS.rdma_resolve_addr(client, None, self.ADDRESS, 2000))
        self.assertEqual(ADDR_RESOLVED, self.take()[1])
        self.assertEqual(0, OURS.rdma_resolve_route(client, 2000))
        self.assertEqual(ROUTE_RESOLVED, self.take()[1])
        self.assertEqual(0, OURS.rdma_connect(client, ctypes.byref(Parameters(qp_num=5))))
        self.channel = self.server
        request, event = self.take()[:2]
        self.assertEqual(CONNECT_REQUEST, event)
        return client, ctypes.cast(request, ctypes.POINTER(Id))

    def test_a_request_whose_client_went_away_tells_nothing_until_it_is_accepted(self):
        client, request = self.connect()
        self.assertEqual(0, OURS.rdma_destroy_id(client))
        later, another = self.connect()
        readable = select.select([self.server.contents.fd], [], [], 0.3)[0]
        self.assertFalse(readable and self.take())
        self.refused(errno.EINVAL, OURS.rdma_accept(request, ctypes.byref(Parameters(qp_num=6))))
        for each in (request, another, later):
            self.assertEqual(0, OURS.rdma_destroy_id(each))


class PollSets(unittest.TestCase):
    """Tests rsockets in a poll set: a server's listening socket, and its connection."""

    def test_connection(self):
        address = (ctypes.c_byte * 16).from_buffer_copy(
            socket.AF_INET.to_bytes(2, "little") + (7475).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8))
        event = (ctypes.c_uint32 * 3)  # packed: events, then 64 bits of data
        epoll_in, add = 1, 1
        server = OURS.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)
        self.assertEqual(0, OURS.rbind(server, address, 16))
        self.assertEqual(0, OURS.rlisten(server, 4))
        polled = OURS.repoll_create(0)
        self.assertEqual(0, OURS.repoll_ctl(polled, add, server, event(epoll_in, 5, 0)))
        out = event()
        self.assertEqual(0, OURS.repoll_wait(polled, out, 1, 0))
        done = []

        def be_client():
            client = OURS.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)
            done.append(OURS.rconnect(client, address, 16))
            done.append(OURS.rsend(client, b"hello", ctypes.c_size_t(5), 0))
            done.append(OURS.rrecv(client, ctypes.create_string_buffer(1), ctypes.c_size_t(1), 0))
            done.append(OURS.rclose(client))

        thread = threading.Thread(target=be_client)
        thread.start()
        self.assertEqual(1, OURS.repoll_wait(polled, out, 1, 20_000))
        self.assertEqual([epoll_in, 5, 0], list(out))
        connection = OURS.raccept(server, None, None)
        self.assertGreaterEqual(connection, 0)
        self.assertEqual(0, OURS.repoll_ctl(polled, add, connection, event(epoll_in, 6, 0)))
        self.assertEqual(1, OURS.repoll_wait(polled, out, 1, 20_000))
        self.assertEqual([epoll_in, 6, 0], list(out))
        data = ctypes.create_string_buffer(8)
        self.assertEqual(5, OURS.rrecv(connection, data, ctypes.c_size_t(8), 0))
        self.assertEqual(b"hello", data.value)
        for each in (connection, server, polled):
            self.assertEqual(0, OURS.rclose(each))
        thread.join()
        self.assertEqual([0, 5, 0, 0], done)


if __name__ == "__main__":
    unittest.main()
