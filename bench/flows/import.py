#!/usr/bin/env python3
"""What an import costs: CPU seconds for a million records, of `thalweg flows import` and of nfcapd, in turns.

    bench/flows/import.py [--thalweg target/release/thalweg ...] [--records 2000000] [--rounds 5]
                          [--from capture udp] [--protocol netflow9 ipfix netflow5]

Several programs after `--thalweg` are compared in the same rounds. Every program gets the same datagrams, from a
capture or by UDP on loopback; nfcapd is asked by UDP alone, with its usual files and with those it compresses by LZ4
(-y) and bzip2 (-j): ours are compressed. The sender waits while much is unread, so nothing is lost,
and a program that stored fewer records than were sent ends the run. A time is user and system time of the whole
process, from its start to the end of its last file.

The records are made by chance, the same in each run: hosts and ports repeat as in real traffic, by a power law, but
packets, bytes and times are spread evenly. Files of real records are smaller.
"""

import argparse
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Within an hour, so that an import makes one folder.
BEGIN_S = 1_760_000_400 // 3600 * 3600
UPTIME_MS = 1_000_000
RECORDS_OF_DATAGRAM = {"netflow5": 30, "netflow9": 24, "ipfix": 24}
TEMPLATE_EVERY = 500
# Element, bytes: what routers send.
FIELDS = [(8, 4), (12, 4), (15, 4), (10, 4), (14, 4), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2),
          (6, 1), (4, 1), (5, 1), (16, 4), (17, 4), (9, 1), (13, 1), (61, 1)]  # fmt: skip
TEMPLATED = struct.Struct(">IIIIIIIIIHHBBBIIBBB")
NETFLOW5 = struct.Struct(">IIIHHIIIIHHBBBBHHBBH")
# Bytes unread, of a buffer of four megabytes.
UNREAD_MAX = 1_000_000
# The last is what the others are compared with.
RIVALS = ["nfcapd -j", "nfcapd -y", "nfcapd"]


def flows(count, uptime_ms):
    """Values of records that were exported at this uptime."""
    chance = flows.chance
    for _ in range(count):
        # A power law: few hosts have most flows.
        src = 0x0A000000 + int(60_000 * chance.random() ** 3)
        dst = 0xC0000000 + int(200_000 * chance.random() ** 3) * 7
        protocol = 6 if chance.random() < 0.7 else 17
        port = (443, 80, 53, 22, 8080)[int(5 * chance.random() ** 2)]
        packets = 1 + int(1 / (chance.random() + 0.0005))
        size = packets * (40 + int(chance.random() * 1400))
        last = uptime_ms - int(chance.random() * 60_000)
        first = last - int(chance.random() * 60_000)
        yield (src, dst, 0x0A0000FE, 1 + src % 4, 5 + dst % 4, packets, size, first, last,
               1024 + int(chance.random() * 60_000), port, protocol, 0x1B if protocol == 6 else 0, src % 3 * 8,
               64500 + src % 50, 1 + dst % 3000)  # fmt: skip


def datagrams(protocol, records):
    """All datagrams, each with its time in seconds."""
    flows.chance = random.Random(7)
    each, sent = RECORDS_OF_DATAGRAM[protocol], 0
    template = struct.pack(">HH", 256, len(FIELDS)) + b"".join(struct.pack(">HH", *field) for field in FIELDS)
    for number in range(-(-records // each)):
        count = min(each, records - sent)
        passed_ms = sent * 1_200_000 // max(records, 1)
        uptime, now = UPTIME_MS + passed_ms, BEGIN_S + 1200 + passed_ms // 1000
        if protocol == "netflow5":
            body = b"".join(
                NETFLOW5.pack(s, d, hop, i, o, p, b, f, l, sp, dp, 0, flags, proto, tos, sas, das, 24, 24, 0)
                for s, d, hop, i, o, p, b, f, l, sp, dp, proto, flags, tos, sas, das in flows(count, uptime)
            )
            yield now, struct.pack(">HHIIIIBBH", 5, count, uptime, now, passed_ms % 1000 * 1_000_000, sent, 0, 0, 0) + body
        else:
            data = b"".join(
                TEMPLATED.pack(s, d, hop, i, o, p, b, f, l, sp, dp, flags, proto, tos, sas, das, 24, 24, 0)
                for s, d, hop, i, o, p, b, f, l, sp, dp, proto, flags, tos, sas, das in flows(count, uptime)
            )
            data += bytes(-len(data) % 4)
            sets = struct.pack(">HH", 256, 4 + len(data)) + data
            is_first = number % TEMPLATE_EVERY == 0
            if protocol == "ipfix":
                # In IPFIX, times of uptime need the time of the start.
                start = struct.pack(">HHHHHHH", 3, 18, 257, 2, 1, 149, 4) + struct.pack(">HH", 160, 8)
                started = struct.pack(">HHIQ", 257, 16, 0, (BEGIN_S + 1200) * 1000 - UPTIME_MS)
                described = struct.pack(">HH", 2, 4 + len(template)) + template + start + started
                sets = (described if is_first else b"") + sets
                yield now, struct.pack(">HHIII", 10, 16 + len(sets), now, sent + number // TEMPLATE_EVERY, 0) + sets
            else:
                described = struct.pack(">HH", 0, 4 + len(template)) + template
                sets = (described if is_first else b"") + sets
                yield now, struct.pack(">HHIIII", 9, count + is_first, uptime, now, number, 0) + sets
        sent += count


def write_capture(path, all_datagrams):
    """As a capture of raw IP."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for now, datagram in all_datagrams:
            length = 28 + len(datagram)
            head = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 17, 0, 0x7F000001, 0x7F000001)
            words = sum(struct.unpack(">10H", head))
            checksum = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
            head = head[:10] + struct.pack(">H", checksum) + head[12:]
            udp = struct.pack(">HHHH", 40000, 2055, 8 + len(datagram), 0)
            file.write(struct.pack("<IIII", now, 0, length, length) + head + udp + datagram)


def unread(port):
    """Bytes in the socket's buffer; None if nobody listens."""
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(f":{port:04X}"):
            return int(words[4].split(":")[1], 16)
    return None


def wait_until(what, is_so):
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    sys.exit(f"waited in vain for {what}")


def send(port, all_datagrams):
    wait_until("a listener", lambda: unread(port) is not None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        for number, (_, datagram) in enumerate(all_datagrams):
            if number % 64 == 0:
                wait_until("the reader", lambda: unread(port) < UNREAD_MAX)
            sender.send(datagram)
    wait_until("the last datagram to be read", lambda: unread(port) == 0)


def run(command, port, all_datagrams, log):
    """Runs a program, to which datagrams are sent if there is a port; returns its CPU seconds and output."""
    with open(log, "wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if port is not None:
        send(port, all_datagrams)
        # What was read is still to be decoded. nfcapd forgets a signal that comes just before it reads its socket.
        time.sleep(0.5)
        child.send_signal(signal.SIGTERM)
    for attempt in range(600):
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.1)
        if port is not None and attempt % 10 == 9:
            child.send_signal(signal.SIGTERM)
    else:
        child.kill()
        sys.exit(f"{command[0]} does not end")
    child.returncode = status
    text = Path(log).read_text(errors="replace")
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}: {text}")
    return usage.ru_utime + usage.ru_stime, text


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def once(program, way, capture, all_datagrams, records, folder):
    """CPU seconds, and the bytes of its files."""
    data = Path(folder) / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    port = free_port() if way == "udp" else None
    if program.startswith("nfcapd"):
        command = [*program.split(), "-b", "127.0.0.1", "-p", str(port), "-t", "3600", "-B", "4000000", "-w", str(data)]
        pattern = r"Flows: (\d+)"
    else:
        source = str(capture) if port is None else f"udp://127.0.0.1:{port}"
        command = [program, "flows", "import", source, "--data", str(data)]
        pattern = r"([\d,]+) records of"
    took, text = run(command, port, all_datagrams, Path(folder) / "log")
    stored = sum(int(number.replace(",", "")) for number in re.findall(pattern, text))
    if stored != records:
        sys.exit(f"{program} has {stored} of {records} records:\n{text}")
    return took, sum(file.stat().st_size for file in data.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thalweg", nargs="*", default=["target/release/thalweg"])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--from", nargs="+", default=["capture", "udp"], choices=["capture", "udp"], dest="ways")
    parser.add_argument("--protocol", nargs="+", default=list(RECORDS_OF_DATAGRAM), choices=list(RECORDS_OF_DATAGRAM))
    parser.add_argument("--capture", type=Path, help="only write the capture of the first protocol here")
    arguments = parser.parse_args()
    if arguments.capture:
        return write_capture(arguments.capture, datagrams(arguments.protocol[0], arguments.records))
    with tempfile.TemporaryDirectory() as folder:
        for protocol in arguments.protocol:
            all_datagrams = list(datagrams(protocol, arguments.records))
            capture = Path(folder) / "capture.pcap"
            write_capture(capture, all_datagrams)
            for way in arguments.ways:
                others = RIVALS if way == "udp" and shutil.which("nfcapd") else []
                compare(arguments, protocol, way, capture, all_datagrams, folder, arguments.thalweg + others)


def compare(arguments, protocol, way, capture, all_datagrams, folder, programs):
    took = [[] for _ in programs]
    size = [0 for _ in programs]
    for _ in range(arguments.rounds):
        for number, program in enumerate(programs):
            seconds, size[number] = once(program, way, capture, all_datagrams, arguments.records, folder)
            took[number].append(seconds / arguments.records * 1e6)
    for number, program in enumerate(programs):
        times = took[number]
        ratio = f", {statistics.median(times) / statistics.median(took[-1]):.2f} of nfcapd" if programs[-1] == "nfcapd" else ""
        print(
            f"{protocol} {way} {program}: {min(times):.3f} / {statistics.median(times):.3f} / {max(times):.3f} s a million"
            f" (least, median, most){ratio}; {size[number] / arguments.records:.1f} bytes a record",
            flush=True,
        )


if __name__ == "__main__":
    main()
