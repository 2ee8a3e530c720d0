// Package lint holds the architecture: its tests read the module's own sources and fail when an import crosses a
// boundary, when the core reads a clock, when a file or function outgrows its budget, when a package has no comment,
// and when a document links to what is not there. It contains no other code.
package lint
