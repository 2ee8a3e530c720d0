//go:build !race

package box

const raced = false
