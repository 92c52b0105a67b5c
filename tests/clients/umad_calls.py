"""Makes calls of libibumad, for management_test.py. Runs over Tulle, as a unittest program of its own."""

import ctypes
import errno
import glob
import select
import struct
import time
import unittest

OURS = ctypes.CDLL("libibumad.so.3", use_errno=True)
PACKAGED = ctypes.CDLL(glob.glob("/usr/lib/*/libibumad.so.3")[0])

MAD_BYTES, HEADER_BYTES = 256, 64
PERFORMANCE, SUBNET, SUBNET_DIRECTED, SUBNET_ADMINISTRATION = 0x04, 0x01, 0x81, 0x03
GET, SET, GET_TABLE, GET_RESPONSE = 0x01, 0x02, 0x12, 0x81
CLASS_PORT_INFO, NODE_INFO, PORT_COUNTERS = 0x01, 0x11, 0x12
VENDOR = 0x32


class Port(ctypes.Structure):
    _fields_ = [("ca_name", ctypes.c_char * 20), ("portnum", ctypes.c_int), ("base_lid", ctypes.c_uint),
                ("lmc", ctypes.c_uint), ("sm_lid", ctypes.c_uint), ("sm_sl", ctypes.c_uint), ("state", ctypes.c_uint),
                ("phys_state", ctypes.c_uint), ("rate", ctypes.c_uint), ("capmask", ctypes.c_uint32),
                ("gid_prefix", ctypes.c_uint64), ("port_guid", ctypes.c_uint64), ("pkeys_size", ctypes.c_uint),
                ("pkeys", ctypes.POINTER(ctypes.c_uint16)), ("link_layer", ctypes.c_char * 20)]


class Adapter(ctypes.Structure):
    _fields_ = [("ca_name", ctypes.c_char * 20), ("node_type", ctypes.c_uint), ("numports", ctypes.c_int),
                ("fw_ver", ctypes.c_char * 20), ("ca_type", ctypes.c_char * 40), ("hw_ver", ctypes.c_char * 20),
                ("node_guid", ctypes.c_uint64), ("system_guid", ctypes.c_uint64),
                ("ports", ctypes.POINTER(Port) * 10)]


class Registration(ctypes.Structure):
    _fields_ = [("mgmt_class", ctypes.c_uint8), ("mgmt_class_version", ctypes.c_uint8), ("flags", ctypes.c_uint32),
                ("method_mask", ctypes.c_uint64 * 2), ("oui", ctypes.c_uint32), ("rmpp_version", ctypes.c_uint8)]


class Pair(ctypes.Structure):
    _fields_ = [("smi_name", ctypes.c_char * 20), ("smi_port", ctypes.c_uint32), ("gsi_name", ctypes.c_char * 20),
                ("gsi_port", ctypes.c_uint32)]


class Node(ctypes.Structure):
    pass


Node._fields_ = [("next", ctypes.POINTER(Node)), ("ca_name", ctypes.c_char_p)]

OURS.umad_get_ca_device_list.restype = ctypes.POINTER(Node)
OURS.umad_get_mad.restype = OURS.umad_get_mad_addr.restype = ctypes.c_void_p
OURS.umad_size.restype = ctypes.c_size_t
for each in (OURS, PACKAGED):
    for text in ("class", "method", "attribute", "common_mad_status", "sa_mad_status"):
        getattr(each, f"umad_{text}_str").restype = ctypes.c_char_p


def buffer():
    return ctypes.create_string_buffer(HEADER_BYTES + MAD_BYTES)


def request(management_class, attribute, method=GET, version=1, transaction=7, data=b""):
    """Returns a datagram behind room for its address. `data` begins at byte 64 of the datagram."""
    mad = struct.pack(">BBBBHHQHHI", 1, management_class, version, method, 0, 0, transaction, attribute, 0, 0)
    out = buffer()
    out[HEADER_BYTES:HEADER_BYTES + MAD_BYTES] = (mad.ljust(64, b"\0") + data).ljust(MAD_BYTES, b"\0")
    return out


class UmadTest(unittest.TestCase):
    def refused(self, error, result):
        self.assertEqual(-error, result)
        self.assertEqual(error, ctypes.get_errno())

    def open(self):
        port = OURS.umad_open_port(None, 0)
        self.assertGreaterEqual(port, 0)
        self.addCleanup(OURS.umad_close_port, port)
        return port

    def agent(self, port, management_class=PERFORMANCE):
        agent = OURS.umad_register(port, management_class, 1, 0, None)
        self.assertGreaterEqual(agent, 0)
        return agent

    def send(self, port, agent, mad, length=MAD_BYTES, timeout=100):
        return OURS.umad_send(port, agent, mad, length, timeout, 0)

    def receive(self, port, timeout=1000):
        out, length = buffer(), ctypes.c_int(MAD_BYTES)
        agent = OURS.umad_recv(port, out, ctypes.byref(length), timeout)
        self.assertGreaterEqual(agent, 0)
        self.assertEqual(MAD_BYTES, length.value)
        return agent, out


class Devices(UmadTest):
    def test_names(self):
        self.assertEqual(0, OURS.umad_init())
        names = (ctypes.c_char * 20 * 32)()
        self.assertEqual(1, OURS.umad_get_cas_names(names, 32))
        self.assertEqual(b"tulle0", names[0].value)
        self.assertEqual(0, OURS.umad_get_cas_names(names, 0))
        self.assertEqual(-1, OURS.umad_get_cas_names(None, 1))
        self.assertEqual(-1, OURS.umad_get_cas_names(names, -1))
        self.assertEqual(0, OURS.umad_done())

    def test_adapter(self):
        adapter = Adapter()
        for name in (None, b"tulle0"):
            self.assertEqual(0, OURS.umad_get_ca(name, ctypes.byref(adapter)))
            self.assertEqual((b"tulle0", 1, 1), (adapter.ca_name, adapter.node_type, adapter.numports))
            port = adapter.ports[1].contents
            self.assertEqual((b"tulle0", 1, 4, 5, b"Ethernet"),
                             (port.ca_name, port.portnum, port.state, port.phys_state, port.link_layer))
            self.assertEqual((1, 0xFFFF), (port.pkeys_size, port.pkeys[0]))
            self.assertEqual(0, OURS.umad_release_ca(ctypes.byref(adapter)))
            self.assertFalse(adapter.ports[1])
            self.assertEqual(0, OURS.umad_release_ca(ctypes.byref(adapter)))  # nothing is left to release
        self.refused(errno.ENODEV, OURS.umad_get_ca(b"nothing0", ctypes.byref(adapter)))
        self.refused(errno.EINVAL, OURS.umad_get_ca(None, None))
        self.refused(errno.ENODEV, OURS.umad_release_ca(None))

    def test_port(self):
        port = Port()
        for number in (0, 1):
            self.assertEqual(0, OURS.umad_get_port(b"tulle0", number, ctypes.byref(port)))
            self.assertEqual(1, port.portnum)
            self.assertEqual(0, OURS.umad_release_port(ctypes.byref(port)))
            self.assertFalse(port.pkeys)
        for number in (2, -1, 255):
            self.refused(errno.EINVAL, OURS.umad_get_port(None, number, ctypes.byref(port)))
        self.refused(errno.ENODEV, OURS.umad_get_port(b"nothing0", 1, ctypes.byref(port)))
        self.refused(errno.EINVAL, OURS.umad_get_port(None, 1, None))
        self.refused(errno.ENODEV, OURS.umad_release_port(None))

    def test_port_guids(self):
        guids = (ctypes.c_uint64 * 4)(*[9] * 4)
        self.assertEqual(2, OURS.umad_get_ca_portguids(None, guids, 4))
        self.assertEqual(0, guids[0])
        self.assertNotIn(guids[1], (0, 9))
        self.refused(errno.ENOMEM, OURS.umad_get_ca_portguids(None, guids, 1))
        self.refused(errno.ENODEV, OURS.umad_get_ca_portguids(b"nothing0", guids, 4))
        self.assertEqual(0, OURS.umad_get_ca_portguids(None, None, 4))

    def test_list(self):
        first = OURS.umad_get_ca_device_list()
        self.assertEqual(b"tulle0", first.contents.ca_name)
        self.assertFalse(first.contents.next)
        self.assertEqual(0, OURS.umad_sort_ca_device_list(ctypes.byref(first), 1))
        self.assertEqual(errno.EINVAL, OURS.umad_sort_ca_device_list(ctypes.byref(first), 2))
        self.assertEqual(errno.EINVAL, OURS.umad_sort_ca_device_list(None, 0))
        OURS.umad_free_ca_device_list(first)
        OURS.umad_free_ca_device_list(None)

    def test_sorting(self):
        nodes = [Node(None, name) for name in (b"c", b"a", b"d", b"b")]
        for node, following in zip(nodes, nodes[1:]):
            node.next = ctypes.pointer(following)
        first = ctypes.pointer(nodes[0])
        self.assertEqual(0, OURS.umad_sort_ca_device_list(ctypes.byref(first), 4))
        names, at = [], first
        while at:
            names.append(at.contents.ca_name)
            at = at.contents.next
        self.assertEqual([b"a", b"b", b"c", b"d"], names)

    def test_pairs(self):
        pairs = (Pair * 2)()
        self.assertEqual(1, OURS.umad_get_smi_gsi_pairs(pairs, ctypes.c_size_t(2)))
        self.assertEqual(0, OURS.umad_get_smi_gsi_pairs(pairs, ctypes.c_size_t(0)))
        self.assertEqual(-1, OURS.umad_get_smi_gsi_pairs(None, ctypes.c_size_t(1)))
        found = Pair()
        for name in (None, b"tulle0"):
            for port in (0, 1):
                self.assertEqual(0, OURS.umad_get_smi_gsi_pair_by_ca_name(name, port, ctypes.byref(found), 1))
                for each in (pairs[0], found):
                    self.assertEqual((b"tulle0", 1, b"tulle0", 1),
                                     (each.smi_name, each.smi_port, each.gsi_name, each.gsi_port))
        self.assertEqual(1, OURS.umad_get_smi_gsi_pair_by_ca_name(b"other", 0, ctypes.byref(found), 0))
        self.assertEqual(1, OURS.umad_get_smi_gsi_pair_by_ca_name(None, 2, ctypes.byref(found), 0))
        self.assertEqual(-1, OURS.umad_get_smi_gsi_pair_by_ca_name(None, 1, None, 0))

    def test_no_subnet_manager(self):
        path = ctypes.create_string_buffer(64)
        self.refused(errno.EINVAL, OURS.umad_get_issm_path(None, 1, path, 64))
        self.refused(errno.ENODEV, OURS.umad_get_issm_path(b"nothing0", 1, path, 64))
        self.refused(errno.EINVAL, OURS.umad_get_issm_path(None, 1, None, 64))


class Ports(UmadTest):
    def test_open(self):
        for name, number in ((None, 0), (b"tulle0", 1)):
            port = OURS.umad_open_port(name, number)
            self.assertGreaterEqual(port, 0)
            self.assertEqual(port, OURS.umad_get_fd(port))
            self.assertEqual(0, OURS.umad_close_port(port))
            self.refused(errno.EINVAL, OURS.umad_close_port(port))
            self.refused(errno.EINVAL, OURS.umad_get_fd(port))
        self.refused(errno.ENODEV, OURS.umad_open_port(b"nothing0", 1))
        self.refused(errno.EINVAL, OURS.umad_open_port(None, 2))
        for port in (-1, 0, 1, 4711):  # whether open or not, these are no ports of the library
            self.refused(errno.EINVAL, OURS.umad_close_port(port))

    def test_open_for_subnet_management(self):
        port = OURS.umad_open_smi_port(b"tulle0", 1)
        self.assertGreaterEqual(port, 0)
        self.assertEqual(0, OURS.umad_close_port(port))
        self.refused(errno.ENODEV, OURS.umad_open_smi_port(b"other", 1))
        self.refused(errno.EINVAL, OURS.umad_open_smi_port(None, 2))

    def test_agents(self):
        port = self.open()
        agents = [self.agent(port) for _ in range(32)]
        self.assertEqual(list(range(32)), agents)
        self.refused(errno.EPERM, OURS.umad_register(port, PERFORMANCE, 1, 0, None))
        self.assertEqual(0, OURS.umad_unregister(port, 5))
        self.refused(errno.EINVAL, OURS.umad_unregister(port, 5))
        self.assertEqual(5, self.agent(port))
        for agent in (-1, 32, 1 << 30):
            self.refused(errno.EINVAL, OURS.umad_unregister(port, agent))
        self.refused(errno.EINVAL, OURS.umad_unregister(4711, 0))

    def test_classes(self):
        port = self.open()
        for management_class, version in ((-1, 1), (0x100, 1), (PERFORMANCE, 8), (PERFORMANCE, -1)):
            self.refused(errno.EPERM, OURS.umad_register(port, management_class, version, 0, None))
        self.refused(errno.EINVAL, OURS.umad_register(4711, PERFORMANCE, 1, 0, None))
        oui = (ctypes.c_uint8 * 3)(0, 0x14, 5)
        self.assertGreaterEqual(OURS.umad_register_oui(port, VENDOR, 0, oui, None), 0)
        self.refused(errno.EINVAL, OURS.umad_register_oui(port, PERFORMANCE, 0, oui, None))
        self.refused(errno.EINVAL, OURS.umad_register_oui(port, VENDOR, 0, None, None))
        self.refused(errno.EINVAL, OURS.umad_register_oui(4711, VENDOR, 0, oui, None))

    def test_register2(self):
        port, agent = self.open(), ctypes.c_uint32(77)
        register = lambda attributes: OURS.umad_register2(port, ctypes.byref(attributes), ctypes.byref(agent))  # noqa: E731
        self.assertEqual(0, register(Registration(mgmt_class=PERFORMANCE, mgmt_class_version=1)))
        self.assertEqual(0, agent.value)
        self.assertEqual(0, register(Registration(mgmt_class=PERFORMANCE, mgmt_class_version=1, flags=1)))
        unknown = Registration(mgmt_class=PERFORMANCE, mgmt_class_version=1, flags=3)
        self.assertEqual(errno.EINVAL, register(unknown))
        self.assertEqual(1, unknown.flags)
        for oui in (0, 1 << 24):
            self.assertEqual(errno.EINVAL, register(Registration(mgmt_class=VENDOR, mgmt_class_version=1, oui=oui)))
        self.assertEqual(0, register(Registration(mgmt_class=VENDOR, mgmt_class_version=1, oui=0x1405)))
        self.assertEqual(errno.EINVAL, OURS.umad_register2(port, None, ctypes.byref(agent)))
        self.assertEqual(errno.EINVAL, OURS.umad_register2(port, ctypes.byref(unknown), None))
        self.assertEqual(errno.EBADF, OURS.umad_register2(4711, ctypes.byref(unknown_class()), ctypes.byref(agent)))


def unknown_class():
    return Registration(mgmt_class=PERFORMANCE, mgmt_class_version=1)


class Datagrams(UmadTest):
    def test_class_port_info(self):
        port = self.open()
        self.agent(port)
        agent = self.agent(port)
        mad = request(PERFORMANCE, CLASS_PORT_INFO, transaction=0x1234)
        self.assertEqual(0, self.send(port, agent, mad))
        self.assertEqual([port], select.select([port], [], [], 1)[0])
        self.assertEqual(0, OURS.umad_poll(port, 0))
        found, answer = self.receive(port)
        self.assertEqual(agent, found)
        self.assertEqual(0, OURS.umad_status(answer))
        body = answer.raw[HEADER_BYTES:]
        self.assertEqual((GET_RESPONSE, 0, 0x1234), struct.unpack_from(">BHxxQ", body, 3))
        self.assertEqual(0x500, struct.unpack_from(">H", body, 66)[0])

    def test_answers_wait_in_order(self):
        port = self.open()
        agent = self.agent(port)
        for transaction in range(8):
            self.assertEqual(0, self.send(port, agent, request(PERFORMANCE, CLASS_PORT_INFO, transaction=transaction)))
        for transaction in range(8):
            body = self.receive(port, 0)[1].raw[HEADER_BYTES:]
            self.assertEqual(transaction, struct.unpack_from(">Q", body, 8)[0])

    def test_nobody_reads(self):
        """A port whose answers nobody takes fills up. That is an error, not a wait."""
        port = self.open()
        agent = self.agent(port)
        for _ in range(100_000):
            result = self.send(port, agent, request(PERFORMANCE, CLASS_PORT_INFO))
            if result != 0:
                break
        self.assertEqual((-errno.EIO, errno.ENOBUFS), (result, ctypes.get_errno()))
        self.receive(port, 0)
        self.assertEqual(0, self.send(port, agent, request(PERFORMANCE, CLASS_PORT_INFO)))

    def test_who_am_i(self):
        port = self.open()
        for management_class in (SUBNET, SUBNET_DIRECTED):
            agent = self.agent(port, management_class)
            self.assertEqual(0, self.send(port, agent, request(management_class, NODE_INFO)))
            body = self.receive(port)[1].raw[HEADER_BYTES:]
            self.assertEqual((1, 1, 1, 1), struct.unpack_from(">BBBB", body, 64))

    def test_status_of_refusals(self):
        port = self.open()
        agent = self.agent(port)
        for mad, status in ((request(PERFORMANCE, PORT_COUNTERS, method=SET), 3 << 2),
                            (request(PERFORMANCE, 0x77), 3 << 2),
                            (request(PERFORMANCE, PORT_COUNTERS, version=2), 1 << 2),
                            (request(PERFORMANCE, PORT_COUNTERS, data=b"\0\2"), 7 << 2),
                            (request(SUBNET_ADMINISTRATION, 0x35), 3 << 2)):
            self.assertEqual(0, self.send(port, agent, mad))
            body = self.receive(port)[1].raw[HEADER_BYTES:]
            self.assertEqual(status, struct.unpack_from(">H", body, 4)[0])

    def test_no_answer(self):
        """A request that nobody answers comes back unchanged, timed out."""
        port = self.open()
        agent = self.agent(port)
        mad = request(SUBNET_ADMINISTRATION, 0x35, method=GET_TABLE)
        self.assertEqual(0, self.send(port, agent, mad))
        found, back = self.receive(port)
        self.assertEqual((agent, errno.ETIMEDOUT), (found, OURS.umad_status(back)))
        self.assertEqual(mad.raw[HEADER_BYTES:], back.raw[HEADER_BYTES:])
        self.assertEqual(0, self.send(port, agent, mad, timeout=0))  # no answer is expected
        self.refused(errno.ETIMEDOUT, OURS.umad_poll(port, 0))

    def test_destinations(self):
        port = self.open()
        agent = self.agent(port)
        mad = request(PERFORMANCE, CLASS_PORT_INFO)
        for lid, error in ((0, 0), (0xFFFF, 0), (5, errno.EINVAL), (0xC000, errno.EINVAL)):
            OURS.umad_set_addr(mad, lid, 1, 0, 0x80010000)
            self.assertEqual(-errno.EIO if error else 0, self.send(port, agent, mad))
            self.assertEqual(error, ctypes.get_errno())
        own = Port()
        self.assertEqual(0, OURS.umad_get_port(None, 0, ctypes.byref(own)))
        gid = struct.pack("QQ", own.gid_prefix, own.port_guid)
        OURS.umad_release_port(ctypes.byref(own))
        for gid, error in ((gid, 0), (b"\xfe\x80" + bytes(13) + b"\1", errno.EHOSTUNREACH)):
            address = (ctypes.c_char * 44)()
            address[16:32] = gid
            self.assertEqual(0, OURS.umad_set_grh(mad, address))
            self.assertEqual(-errno.EIO if error else 0, self.send(port, agent, mad))
            self.assertEqual(error, ctypes.get_errno())
        directed = request(SUBNET_DIRECTED, NODE_INFO)
        directed[HEADER_BYTES + 7] = b"\1"  # a hop
        self.assertEqual(-errno.EIO, self.send(port, agent, directed))
        self.assertEqual(errno.EPROTONOSUPPORT, ctypes.get_errno())

    def test_bad_sends(self):
        port = self.open()
        agent = self.agent(port)
        mad = request(PERFORMANCE, CLASS_PORT_INFO)
        self.refused(errno.EINVAL, self.send(4711, agent, mad))
        self.refused(errno.EINVAL, self.send(port, agent, None))
        for unknown in (-1, agent + 1, 32, 1 << 30):
            self.refused(errno.EINVAL, self.send(port, unknown, mad))
        for length in (-1, 0, 35, 257, 1 << 30):
            self.assertEqual(-errno.EIO, self.send(port, agent, mad, length))
            self.assertEqual(errno.EINVAL, ctypes.get_errno())
        self.assertEqual(0, self.send(port, agent, mad, 36))

    def test_bad_receives(self):
        port = self.open()
        out, length = buffer(), ctypes.c_int(MAD_BYTES)
        receive = lambda *arguments: OURS.umad_recv(*arguments)  # noqa: E731
        self.refused(errno.EWOULDBLOCK, receive(port, out, ctypes.byref(length), 0))
        begin = time.monotonic()
        self.refused(errno.ETIMEDOUT, receive(port, out, ctypes.byref(length), 50))
        self.assertGreater(time.monotonic() - begin, 0.04)
        self.refused(errno.ETIMEDOUT, OURS.umad_poll(port, 1))
        self.refused(errno.EINVAL, receive(4711, out, ctypes.byref(length), 0))
        self.refused(errno.EINVAL, receive(port, None, ctypes.byref(length), 0))
        self.refused(errno.EINVAL, receive(port, out, None, 0))
        length.value = MAD_BYTES - 1
        self.refused(errno.EINVAL, receive(port, out, ctypes.byref(length), 0))
        self.refused(errno.EINVAL, OURS.umad_poll(4711, 0))


class Buffers(UmadTest):
    def test_layout(self):
        self.assertEqual(HEADER_BYTES, OURS.umad_size())
        mad = buffer()
        self.assertEqual(ctypes.addressof(mad) + HEADER_BYTES, OURS.umad_get_mad(mad))
        self.assertEqual(ctypes.addressof(mad) + 20, OURS.umad_get_mad_addr(mad))

    def test_addresses_are_those_of_the_packaged_library(self):
        address = (ctypes.c_char * 44)()
        address[16:32] = bytes(range(16))
        address[12:16] = b"\0\1\2\3"
        address[32:36] = struct.pack("=I", 0xABCDE)
        made = []
        for library in (OURS, PACKAGED):
            mad = buffer()
            library.umad_set_addr(mad, 0x1234, 0x56789A, 7, 0x80010000)
            made.append(mad.raw)
            library.umad_set_addr_net(mad, 0x1234, 0x56789A, 7, 0x1020304)
            library.umad_set_grh(mad, address)
            made.append(mad.raw)
            library.umad_set_grh(mad, None)
            made.append(mad.raw)
        self.assertEqual(made[3:], made[:3])

    def test_partition_key(self):
        mad = buffer()
        self.assertEqual(0, OURS.umad_set_pkey(mad, 3))
        self.assertEqual(3, OURS.umad_get_pkey(mad))

    def test_nothing(self):
        self.assertIsNone(OURS.umad_get_mad(None))
        self.assertIsNone(OURS.umad_get_mad_addr(None))
        self.assertEqual(-errno.EINVAL, OURS.umad_set_addr(None, 1, 1, 0, 0))
        self.assertEqual(-errno.EINVAL, OURS.umad_set_grh(None, None))
        self.assertEqual(-errno.EINVAL, OURS.umad_set_pkey(None, 0))
        self.assertNotEqual(0, OURS.umad_status(None))
        OURS.umad_dump(None)
        OURS.umad_addr_dump(None)

    def test_debug_level(self):
        self.assertEqual((2, 2, 0), tuple(OURS.umad_debug(level) for level in (2, -1, 0)))

    def test_names_are_those_of_the_packaged_library(self):
        for value in range(256):
            self.assertEqual(PACKAGED.umad_class_str(value), OURS.umad_class_str(value))
            for management_class in (SUBNET, SUBNET_ADMINISTRATION, PERFORMANCE):
                names = [each.umad_method_str(management_class, value) for each in (OURS, PACKAGED)]
                self.assertEqual(names[1], names[0], value)
        for value in (*range(256), 0xFF00, 0xFF90, 0x0100, 0x0300, 0x0800, 0x0900, 0x0C04):
            wire = struct.unpack("=H", struct.pack(">H", value))[0]
            for management_class in (SUBNET, SUBNET_DIRECTED, SUBNET_ADMINISTRATION, PERFORMANCE, 7):
                names = [each.umad_attribute_str(management_class, wire) for each in (OURS, PACKAGED)]
                self.assertEqual(names[1], names[0], value)
            for text in ("common_mad_status", "sa_mad_status"):
                names = [getattr(each, f"umad_{text}_str")(wire) for each in (OURS, PACKAGED)]
                self.assertEqual(names[1], names[0], value)


if __name__ == "__main__":
    unittest.main()
