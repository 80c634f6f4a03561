package logstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
)

// The format of raft-wal's segments, version 0: a header, and then batches. A batch consists of
// frames of entries, possibly a frame with the segment's index, and a frame with a checksum. The
// checksum covers everything since the previous checksum or, in the first batch, since the start of
// the file. Frames are padded to multiples of 8 bytes, and zeros follow the last batch.
const (
	walHeaderBytes = 32
	walFrameBytes  = 8 // of a frame's header: type, three zeros, length or checksum
	walAlignment   = 8

	walFrameEntry  = 1
	walFrameIndex  = 2
	walFrameCommit = 3
)

// walTail is the content of the segment with the end of the log.
type walTail struct {
	size       int64 // of the file
	end        int64 // of the last complete batch
	entries    uint64
	indexStart int64 // the position of a closed segment's index; 0: not closed
	torn       bool  // data is written after the end
	lost       bool  // and complete batches are in this data: no crash causes that
}

// walBatch is one batch.
type walBatch struct {
	end        int64
	entries    uint64
	indexStart int64
}

// readTail reads a segment up to its last whole batch, and checks the bytes after it. A crash
// leaves at most one batch there, and only an incomplete one: raft-wal writes the next batch only
// when the last one is on disk, and wipes the remains of an earlier crash. A whole batch there
// was therefore acknowledged once, and the bytes before it are damaged.
func readTail(file *os.File) (walTail, error) {
	about, err := file.Stat()
	if err != nil {
		return walTail{}, err
	}
	tail := walTail{size: about.Size()}
	header := make([]byte, walHeaderBytes)
	if _, err := file.ReadAt(header, 0); errors.Is(err, io.EOF) {
		return tail, nil
	} else if err != nil {
		return tail, err
	}
	reader := bufio.NewReader(io.NewSectionReader(file, walHeaderBytes, tail.size-walHeaderBytes))
	sum, at := crc32.Checksum(header, castagnoli), int64(walHeaderBytes)
	for {
		batch, whole, err := readBatch(reader, sum, at, tail.size)
		if err != nil {
			return tail, err
		}
		if !whole {
			break
		}
		tail.end, tail.indexStart = batch.end, batch.indexStart
		tail.entries += batch.entries
		sum, at = 0, batch.end
	}
	tail.torn, tail.lost, err = behind(file, tail.end, tail.size)
	return tail, err
}

// readBatch reads frames up to one with a checksum. whole: the checksum is present and right. sum
// is the checksum of the data that already belongs to the batch.
func readBatch(reader io.Reader, sum uint32, at, size int64) (batch walBatch, whole bool, err error) {
	var header [walFrameBytes]byte
	hash := &running{sum: sum}
	for at+walFrameBytes <= size {
		if _, err := io.ReadFull(reader, header[:]); err != nil {
			return batch, false, unlessEnd(err)
		}
		value := binary.LittleEndian.Uint32(header[4:])
		at += walFrameBytes
		switch header[0] {
		case walFrameEntry:
			batch.entries++
		case walFrameIndex:
			batch.indexStart = at
		case walFrameCommit:
			batch.end = at
			return batch, value == hash.sum, nil
		default:
			return batch, false, nil
		}
		_, _ = hash.Write(header[:])
		length := (int64(value) + walAlignment - 1) / walAlignment * walAlignment
		if at += length; at > size {
			return batch, false, nil
		}
		if _, err := io.CopyN(hash, reader, length); err != nil {
			return batch, false, unlessEnd(err)
		}
	}
	return batch, false, nil
}

// unlessEnd is nil at the end of a file, where the read was to stop anyway.
func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// running is a checksum that can continue an earlier checksum.
type running struct{ sum uint32 }

func (r *running) Write(data []byte) (int, error) {
	r.sum = crc32.Update(r.sum, castagnoli, data)
	return len(data), nil
}

// behind looks for non-zero bytes, and for a whole batch, from a position to the end of a
// file. It tries each frame of an entry as the start of a batch. Only the true first entry
// succeeds, because the checksum covers the whole batch.
func behind(file io.ReaderAt, from, size int64) (something, batch bool, err error) {
	const chunk = 64 << 10
	from = (from + walAlignment - 1) / walAlignment * walAlignment
	buffer, zeros := make([]byte, chunk), make([]byte, chunk)
	for at := from; at < size; at += chunk {
		n, err := file.ReadAt(buffer, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return something, false, err
		}
		if bytes.Equal(buffer[:n], zeros[:n]) {
			continue
		}
		something = true
		for i := 0; i+walFrameBytes <= n; i += walAlignment {
			if !bytes.Equal(buffer[i:i+4], []byte{walFrameEntry, 0, 0, 0}) {
				continue
			}
			begin := at + int64(i)
			_, whole, err := readBatch(bufio.NewReader(io.NewSectionReader(file, begin, size-begin)), 0, begin, size)
			if err != nil || whole {
				return something, err == nil, err
			}
		}
	}
	return something, false, nil
}

// wipe writes zeros to a file, durably.
func wipe(file *os.File, from, to int64) error {
	const chunk = 64 << 10
	zeros := make([]byte, chunk)
	for at := from; at < to; at += chunk {
		if _, err := file.WriteAt(zeros[:min(chunk, to-at)], at); err != nil {
			return err
		}
	}
	return file.Sync()
}
