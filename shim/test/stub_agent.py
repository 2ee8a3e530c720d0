#!/usr/bin/env python3
"""An agent for tests of the hooks: it grants every request, keeps the books of one allocation, and enforces its limit.

    stub_agent.py SOCKET [--gpu UUID]... [--limit MIB] [--yield | --never] -- COMMAND...

Runs the command with WEFT_SOCKET set, and exits with its status. With --yield each grant is followed by YIELD, so that the
token comes back as soon as the shim knows that nothing is outstanding; with --never nothing is granted. It fails when messages were wrong, or when memory is
charged after all processes ended.
"""
import argparse
import os
import selectors
import socket
import struct
import subprocess
import sys

MAGIC, VERSION = 0x54464557, 1
(HELLO, USE, REQUEST, RELEASED, IDLE, ALLOC, FREE, EXPORT, IMPORT, ITERATION, VIEW, PROCESSES_OF, PONG) = range(1, 14)
WELCOME, REFUSED, GRANT, NARROW, YIELD, DROP, MEMORY, LIST = range(32, 40)
OK, OUT_OF_MEMORY, UNKNOWN = 0, 1, 2
HOST = 7


class Agent:
    def __init__(self, gpus, limit, yields=False, never=False):
        self.gpus, self.limit, self.yields, self.never = gpus, limit, yields, never
        self.used = [0] * len(gpus)
        self.peak = [0] * len(gpus)
        self.exported = {}  # key -> piece
        self.epoch = 0
        self.faults = []
        self.clients = {}

    def fault(self, text):
        self.faults.append(text)


class Piece:
    """Charged memory; kept by its owner's handle and by every import."""

    def __init__(self, gpu, size, host=False):
        self.gpu, self.size, self.host, self.references = gpu, size, host, 1


class Client:
    def __init__(self, agent, connection):
        self.agent, self.connection, self.sent, self.pieces, self.gpus, self.observer = agent, connection, 0, {}, 0, False
        self.pid = struct.unpack('3i', connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def send(self, kind, body=b''):
        self.sent += 1
        try:
            self.connection.send(struct.pack('=IHHII', MAGIC, VERSION, kind, 16 + len(body), self.sent) + body)
        except OSError:
            pass

    def drop(self, piece):
        piece.references -= 1
        if piece.references == 0 and not piece.host:
            self.agent.used[piece.gpu] -= piece.size

    def receive(self):
        """Handles one message; False when the connection has ended."""
        try:
            packet = self.connection.recv(1024)
        except ConnectionError:
            packet = b''
        if not packet:
            for piece in self.pieces.values():
                self.drop(piece)
            self.pieces = {}
            return False
        magic, version, kind, length, _ = struct.unpack_from('=IHHII', packet)
        if (magic, version, length) != (MAGIC, VERSION, len(packet)):
            self.agent.fault(f'malformed message of {len(packet)} bytes')
            return True
        self.handle(kind, packet[16:])
        return True

    def answer(self, handle, outcome, gpu):
        agent = self.agent
        self.send(MEMORY, struct.pack('=QIIQQQ', handle, outcome, gpu, agent.limit, agent.used[gpu], 0))

    def handle(self, kind, body):
        agent = self.agent
        if kind == HELLO:
            self.observer = bool(struct.unpack_from('=QQII', body)[3] & 1)
            gpus = b''.join(u + struct.pack('=QQ', agent.limit, agent.limit) for u in agent.gpus)
            self.send(WELCOME, struct.pack('=QIIII', 1, len(agent.gpus), 1, 1000, 0) + gpus.ljust(32 * 16, b'\0'))
        elif kind == USE:
            self.gpus = struct.unpack_from('=I', body)[0]
        elif kind == REQUEST:
            if agent.never:
                return
            agent.epoch += 1
            self.send(GRANT, struct.pack('=QQQQ', agent.epoch, 0, 0, 0))
            if agent.yields:
                self.send(YIELD, struct.pack('=QQ', agent.epoch, 0))
        elif kind == ALLOC:
            self.alloc(*struct.unpack('=QQIHH', body))
        elif kind == FREE:
            handle, gpu, _ = struct.unpack('=QII', body)
            if handle in self.pieces:
                self.drop(self.pieces.pop(handle))
            else:
                agent.fault(f'free of unknown handle {handle}')
        elif kind == EXPORT:
            handle, _, _, key = struct.unpack('=QII64s', body)
            if handle in self.pieces:
                agent.exported[key] = self.pieces[handle]
            else:
                agent.fault(f'export of unknown handle {handle}')
        elif kind == IMPORT:
            handle, gpu, _, key = struct.unpack('=QII64s', body)
            piece = agent.exported.get(key)
            if piece and piece.references:
                piece.references += 1
                self.pieces[handle] = piece
            self.answer(handle, OK if piece else UNKNOWN, gpu)
        elif kind == VIEW:
            handle, gpu, _ = struct.unpack('=QII', body)
            self.answer(handle, OK, gpu)
        elif kind == PROCESSES_OF:
            handle, gpu, _ = struct.unpack('=QII', body)
            users = [c for c in agent.clients.values() if c.gpus >> gpu & 1]
            entries = b''.join(struct.pack('=QiI', sum(p.size for p in c.pieces.values() if p.gpu == gpu), c.pid, 0)
                               for c in users)
            self.send(LIST, struct.pack('=QII', handle, gpu, len(users)) + entries)
        elif kind not in (RELEASED, IDLE, ITERATION, PONG):
            agent.fault(f'unexpected message {kind}')

    def alloc(self, handle, size, gpu, family, flags):
        agent = self.agent
        if handle in self.pieces:
            agent.fault(f'handle {handle} charged twice')
        if family == HOST:
            self.pieces[handle] = Piece(gpu, size, host=True)
        elif agent.used[gpu] + size <= agent.limit or flags & 1:
            agent.used[gpu] += size
            agent.peak[gpu] = max(agent.peak[gpu], agent.used[gpu])
            self.pieces[handle] = Piece(gpu, size)
        else:
            self.answer(handle, OUT_OF_MEMORY, gpu)
            return
        self.answer(handle, OK, gpu)


def serve(agent, listener, process):
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    ended = os.pidfd_open(process.pid)
    selector.register(ended, selectors.EVENT_READ)
    last = False
    while True:
        ready = selector.select(0 if last else None)
        if last and not ready:
            return
        for key, _ in ready:
            if key.fileobj == ended:
                selector.unregister(ended)
                last = True
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                agent.clients[connection] = Client(agent, connection)
                selector.register(connection, selectors.EVENT_READ)
            elif not agent.clients[key.fileobj].receive():
                selector.unregister(key.fileobj)
                del agent.clients[key.fileobj]
                key.fileobj.close()


def run(path, command, environment, gpus, limit, yields=False, never=False):
    """Runs a command under an agent of its own. Returns its status and the agent."""
    agent = Agent(gpus, limit, yields, never)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(512)
    try:
        process = subprocess.Popen(command, env=environment | {'WEFT_SOCKET': path})
        serve(agent, listener, process)
    finally:
        listener.close()
        os.unlink(path)
    return process.wait(), agent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('socket')
    parser.add_argument('--gpu', action='append', default=[])
    parser.add_argument('--limit', type=int, default=1024)
    parser.add_argument('--yield', dest='yields', action='store_true')
    parser.add_argument('--never', action='store_true')
    parser.add_argument('command', nargs='+')
    options = parser.parse_args()
    gpus = [bytes.fromhex(u.removeprefix('GPU-').replace('-', '')) for u in options.gpu] or [bytes(range(16))]
    status, agent = run(options.socket, options.command, os.environ, gpus, options.limit << 20, options.yields,
                        options.never)
    if agent.faults or any(agent.used):
        print(f'agent: still charged {agent.used} bytes; faults: {agent.faults}', file=sys.stderr)
        return 1
    return status


if __name__ == '__main__':
    sys.exit(main())
