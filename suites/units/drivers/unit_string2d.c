/* Conversion of text to a double. */
#include "unit.h"

#include <string.h>
#include "util.h"

static const char *const texts[] = {"0", "-0", "1", "-1", "0.1", "-0.1", "1.5", "3.141592653589793", "1e10", "1e-10", "1e308",
                                    "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "123456789012345678",
                                    "9007199254740993", "0.30000000000000004", "1e22", "1e23", "inf", "-inf", "abc", "", "1a",
                                    "17976931348623157", "8.5e-1", "100000000000000000000000"};

void unit_string2d(void)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t length = strlen(texts[i]);

        line("text %s", texts[i]);
        for (size_t offset = 0; offset < OFFSETS; offset++) {
            /* The function also reads the NUL. */
            unsigned char *text = place_copy(offset, texts[i], length + 1);
            double value = 0;
            uint64_t bits = 0;

            if (string2d((const char *)text, length, &value)) {
                memcpy(&bits, &value, sizeof bits);
                unsigned_number(bits);
            } else {
                bytes("", 0);
            }
            release(text);
        }
        end();
    }
}
