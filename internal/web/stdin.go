package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/box"
	"weft.dev/weft/internal/web/client"
)

const (
	inputTime = 10 * time.Second // for a request and its answer
	mostInput = 256              // bytes of a request
)

// serveInputs takes the inputs of jobs until the listener or the server ends, and waits for those being taken.
func (s *Server) serveInputs(l *net.UnixListener) {
	var wait sync.WaitGroup
	defer wait.Wait()
	d := &door{l, s.uid, newQuota(mostInputs)}
	for {
		conn, err := d.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors are left, perhaps
			select {
			case <-s.life.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		g, ok := conn.(*guest)
		if !ok {
			_ = conn.Close() // it cannot be
			continue
		}
		wait.Go(func() {
			defer func() { _ = g.Close() }() // all is said
			_ = g.SetDeadline(time.Now().Add(inputTime))
			var answer client.Refusal
			if err := s.input(g); err != nil && !errors.As(err, &answer.Error) {
				answer.Error = &box.Error{Kind: box.Trouble, Code: "input", Message: err.Error()}
			}
			_ = json.NewEncoder(g).Encode(answer) // who asked may be gone
		})
	}
}

// input takes one input.
func (s *Server) input(g *guest) error {
	if err := s.admit(g.caller, true); err != nil {
		return err
	}
	line, files, err := receive(g.UnixConn)
	if err == nil {
		var request client.StdinRequest
		request, err = inputOf(line, len(files))
		if err == nil {
			return s.box.Stdin(g.caller, request.Job, files[0])
		}
	}
	for _, f := range files {
		_ = f.Close() // it was not wanted
	}
	return err
}

// inputOf reads a request that came with a number of descriptors.
func inputOf(line []byte, descriptors int) (client.StdinRequest, error) {
	var request client.StdinRequest
	if err := json.Unmarshal(line, &request); err != nil {
		return request, bad("body", "", "this is no request for an input: "+err.Error(), `{"job":ID} and a line feed`)
	}
	if descriptors != 1 {
		return request, bad("body", "", fmt.Sprintf("%d descriptors came with the request, not one", descriptors), "send one, beside the line")
	}
	return request, nil
}

// receive reads a line and the descriptors that come with it.
func receive(conn *net.UnixConn) (line []byte, files []*os.File, err error) {
	var data [mostInput]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	for !bytes.Contains(line, []byte("\n")) {
		n, o, flags, _, err := conn.ReadMsgUnix(data[:], oob)
		files = append(files, descriptors(oob[:o])...)
		line = append(line, data[:n]...)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, files, err
		case flags&unix.MSG_CTRUNC != 0 || len(files) > 1:
			return nil, files, bad("body", "", "more than one descriptor came with the request", "send one, beside the line")
		case n == 0 || len(line) > mostInput:
			return nil, files, bad("body", "", "no whole request came", `{"job":ID} and a line feed`)
		}
	}
	return line, files, nil
}

// descriptors are the open files that came with a message.
func descriptors(oob []byte) []*os.File {
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // it is of another sort
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stdin"))
		}
	}
	return files
}
