package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// record is one executed delivery, and its effect: a line of the journal.
type record struct {
	DeliveryID  string          `json:"delivery_id"`
	OperationID string          `json:"operation_id"`
	BodySHA256  string          `json:"body_sha256"`
	Operation   string          `json:"operation"`
	Receipt     json.RawMessage `json:"receipt"`
}

// Journal is what this listener did. A line is there whole or not at all, and synced before anybody is told.
type Journal struct {
	mutex       sync.Mutex
	file        *os.File
	size        int64
	byDelivery  map[string]*record
	byOperation map[string]*record
}

// OpenJournal reads what was done before and drops a line that a kill cut short.
func OpenJournal(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &Journal{file: file, byDelivery: map[string]*record{}, byOperation: map[string]*record{}}
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return j, file.Truncate(j.size)
		}
		var found record
		if err := json.Unmarshal(line, &found); err != nil {
			return nil, err
		}
		j.size += int64(len(line))
		j.keep(&found)
	}
}

func (j *Journal) keep(found *record) {
	j.byDelivery[found.DeliveryID] = found
	j.byOperation[found.OperationID] = found
}

// Count is how many effects there are.
func (j *Journal) Count() int {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return len(j.byDelivery)
}

// Once executes a delivery, or reports what was done under its id or its operation. The lock makes duplicates at one
// moment wait for the first of them.
func (j *Journal) Once(event *Event, digest string, executable func() error) (receipt []byte, isRepeat bool, err error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	id, operationID, operation := event.Text("id"), event.Text("operationid"), event.operation()
	if known := j.byDelivery[id]; known != nil {
		if known.BodySHA256 != digest {
			return nil, false, refuse(409, "VERSION_CONFLICT", "body_differs")
		}
		return known.Receipt, true, nil
	}
	if known := j.byOperation[operationID]; known != nil {
		if known.Operation != operation {
			return nil, false, refuse(409, "VERSION_CONFLICT", "operation_differs")
		}
		return makeReceipt(id, operationID), true, nil
	}
	if err := executable(); err != nil {
		return nil, false, err
	}
	done := &record{id, operationID, digest, operation, makeReceipt(id, operationID)}
	return done.Receipt, false, j.commit(done)
}

func (j *Journal) commit(done *record) error {
	line, err := json.Marshal(done)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	_, err = j.file.WriteAt(line, j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.file.Truncate(j.size) // nothing of it may be found after a restart
		return err
	}
	j.size += int64(len(line))
	j.keep(done)
	return nil
}

func makeReceipt(id, operationID string) json.RawMessage {
	receipt, _ := json.Marshal(map[string]any{
		"status": "done", "delivery_id": id, "operation_id": operationID, "source_version": "journal-1", "count": 1,
		"evidence": "journal:" + operationID, "executed_at": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
	})
	return receipt
}
