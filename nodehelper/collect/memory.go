// SPDX-License-Identifier: Apache-2.0

package collect

// Memory is what one reading of a network namespace leaves for the next one: the elements of anonymous maps, of which
// kube-proxy has one in the rule of each Service. To request these takes most of the time of reading nf_tables, and
// they never change: the kernel refuses it for a constant set that a rule uses (nft_add_set_elem, nft_del_setelem), and
// numbers no other set of the table, and no other table, as it did one before (nf_tables_alloc_handle). Which sets
// there are is read each time.
//
// It is for one network namespace, and for one reading at a time.
type Memory struct {
	sets map[setName][]byte
	// restless says that the rules have changed while they were read.
	restless bool
}

// setName is the kernel's name of a set that no other one ever gets.
type setName struct {
	family     uint8
	table, set uint64 // their handles
}
