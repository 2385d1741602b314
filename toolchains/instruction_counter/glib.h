/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Stands in for GLib's header: qemu-plugin.h names two of its types and uses nothing of them that counter.c calls, so the
 * counter compiles on a machine without GLib's development files.
 */
#ifndef PLUMBLINE_GLIB_H
#define PLUMBLINE_GLIB_H

typedef struct GArray GArray;
typedef struct GByteArray GByteArray;

#endif
