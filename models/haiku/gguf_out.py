"""Writes a GGUF file (version 3): metadata, tensor table, aligned tensor data.

Owns the byte layout only; train.py says what goes in.  As a program, turns a
little-endian F16 file of this writer's kind into F32:  gguf_out.py IN OUT
"""

import struct
import sys

import numpy as np

TYPE = {'u8': 0, 'u32': 4, 'i32': 5, 'f32': 6, 'bool': 7, 'str': 8, 'arr': 9, 'u64': 10}
PACK = {'u8': '<B', 'u32': '<I', 'i32': '<i', 'f32': '<f', 'bool': '<?', 'u64': '<Q'}
F32, F16 = 0, 1
ALIGN = 32


def _str(s):
    b = s.encode('utf-8')
    return struct.pack('<Q', len(b)) + b


def _value(kind, v):
    return _str(v) if kind == 'str' else struct.pack(PACK[kind], v)


def _entry(key, kind, v):
    """kind is a scalar's name, or "arr:<name>" for an array of them."""
    if kind.startswith('arr:'):
        e = kind[4:]
        return _str(key) + struct.pack('<IIQ', TYPE['arr'], TYPE[e], len(v)) + b''.join(_value(e, x) for x in v)
    return _str(key) + struct.pack('<I', TYPE[kind]) + _value(kind, v)


def _pad(n):
    return -n % ALIGN


def write(path, metadata, tensors):
    """metadata: [(key, kind, value)]; tensors: [(name, numpy array of float32 or float16)]."""
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(metadata))
    head += b''.join(_entry(*m) for m in metadata)
    offset = 0
    for name, a in tensors:
        kind = {np.dtype('float32'): F32, np.dtype('float16'): F16}[a.dtype]
        ne = a.shape[::-1]  # GGUF lists the row length first
        head += (
            _str(name)
            + struct.pack('<I', len(ne))
            + struct.pack('<%dQ' % len(ne), *ne)
            + struct.pack('<IQ', kind, offset)
        )
        offset += a.nbytes + _pad(a.nbytes)
    with open(path, 'wb') as f:
        f.write(head + b'\0' * _pad(len(head)))
        for _, a in tensors:
            f.write(np.ascontiguousarray(a).tobytes() + b'\0' * _pad(a.nbytes))


def read(path):
    """The inverse of write(): (metadata, tensors)."""
    names = {v: k for k, v in TYPE.items()}
    with open(path, 'rb') as f:
        d = f.read()
    p = 24
    _, nt, nk = struct.unpack_from('<IQQ', d, 4)

    def get(fmt):
        nonlocal p
        v = struct.unpack_from(fmt, d, p)[0]
        p += struct.calcsize(fmt)
        return v

    def text():
        nonlocal p
        n = get('<Q')
        p += n
        return d[p - n : p].decode('utf-8')

    def value(kind):
        return text() if kind == 'str' else get(PACK[kind])

    metadata = []
    for _ in range(nk):
        key, kind = text(), names[get('<I')]
        if kind == 'arr':
            e = names[get('<I')]
            metadata.append((key, 'arr:' + e, [value(e) for _ in range(get('<Q'))]))
        else:
            metadata.append((key, kind, value(kind)))
    table = []
    for _ in range(nt):
        name = text()
        ne = [get('<Q') for _ in range(get('<I'))]
        table.append((name, ne[::-1], get('<I'), get('<Q')))
    base = p + _pad(p)
    tensors = []
    for name, shape, kind, off in table:
        t = {F32: '<f4', F16: '<f2'}[kind]
        n = int(np.prod(shape))
        tensors.append((name, np.frombuffer(d, t, n, base + off).reshape(shape)))
    return metadata, tensors


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    kv, ts = read(sys.argv[1])
    kv = [(k, t, 0 if k == 'general.file_type' else v) for k, t, v in kv]
    write(sys.argv[2], kv, [(n, a.astype(np.float32)) for n, a in ts])
