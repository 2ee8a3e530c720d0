package client

import "weft.dev/weft/internal/box"

// Schema is the version of the answers. Keys are only ever added to one.
const Schema = 1

// JobList is the answer that lists jobs, in ascending IDs.
type JobList struct {
	Schema int       `json:"schema"`
	Jobs   []box.Job `json:"jobs"`
}

// IDList is the answer to a submission: one ID, or those of an array.
type IDList struct {
	Schema int      `json:"schema"`
	IDs    []box.ID `json:"ids"`
}

// GPUList is the answer that lists GPUs.
type GPUList struct {
	Schema int       `json:"schema"`
	GPUs   []box.GPU `json:"gpus"`
}

// State is the machine at one instant, as the stream tells it.
type State struct {
	Status box.Status `json:"status"`
	Jobs   []box.Job  `json:"jobs"`
	GPUs   []box.GPU  `json:"gpus"`
}

// Refusal is the body of an answer that says no.
type Refusal struct {
	Error *box.Error `json:"error"`
}
